package scripts_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// ask makes the request, again and again while nobody listens yet.
func ask(ts *testscript.TestScript, args []string) (status, body string) {
	deadline := time.Now().Add(20 * time.Second)
	for {
		var content io.Reader
		if len(args) > 3 {
			content = strings.NewReader(args[3])
		}
		req, err := http.NewRequest(args[0], ts.Getenv("URL")+args[1], content)
		ts.Check(err)
		req.Header.Set("Content-Type", "application/json")
		if len(args) > 2 && args[2] != "" {
			req.Header.Set("Authorization", "Bearer "+args[2])
		}
		res, err := http.DefaultClient.Do(req)
		if errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(deadline) {
			<-time.After(20 * time.Millisecond)
			continue
		}
		ts.Check(err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		ts.Check(err)
		return strconv.Itoa(res.StatusCode), string(b)
	}
}
