package db_test

import (
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

func TestRejectedConnectionSaysWhatToDo(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(dbtest.Empty(t, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(u *url.URL){
		"createdb nosuch":                func(u *url.URL) { u.Path = "/nosuch" },
		"check the user":                 func(u *url.URL) { u.User = url.UserPassword("stranger", "x") },
		"use sslmode=disable if no one ": func(u *url.URL) { u.RawQuery = "sslmode=require" },
	} {
		changed := *address
		change(&changed)
		if d, err := db.Open(t.Context(), changed.String()); err == nil {
			d.Close()
			t.Errorf("%s: connected", changed.Redacted())
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want advice with %q", err, want)
		}
	}
}
