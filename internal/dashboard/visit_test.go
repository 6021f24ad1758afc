package dashboard

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"turnpike/internal/fault"
)

// TestBrowserThatLeftIsNoFaultOfOurs, nor a page that a stopping server ends.
func TestBrowserThatLeftIsNoFaultOfOurs(t *testing.T) {
	t.Parallel()
	stopping := fault.New(fault.Overloaded, "the server is stopping; try again")
	for want, cause := range map[fault.Code]error{fault.RequestTimeout: nil, fault.Overloaded: stopping} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		v := &visit{r: httptest.NewRequest("GET", "/dashboard/", nil).WithContext(ctx)}
		if f := v.faultOf(fmt.Errorf("list keys: %w", ctx.Err())); f.Code != want {
			t.Errorf("it is %s, expected %s", f.Code, want)
		}
	}
}
