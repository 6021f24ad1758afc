package safehttp

import "net/http"

func Bounded(next http.RoundTripper) http.RoundTripper { return next }
