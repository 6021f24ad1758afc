//go:build clients

package turnpike_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	turnpike "turnpike/sdk/go"
	"turnpike/sdk/go/api"
)

// A backend creates a token for a page, which can only chat, for 15 minutes.
func Example_scopedToken() {
	c, err := turnpike.New(os.Getenv("TURNPIKE_BASE_URL"), os.Getenv("TURNPIKE_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	res, err := c.CreateScopedTokenWithResponse(context.Background(), nil, api.ScopedTokenCreate{
		Scopes:    []api.ScopeName{"chat.completions:create"},
		ExpiresIn: new(900),
		Metadata:  new(map[string]any{"user": "u_42"}),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.JSON200.Value[:len("tp_scoped_")], res.JSON200.ExpiresIn)
	// Output: tp_scoped_ 900
}

// A program waits for an image batch and shows its progress.
func Example_imageBatch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := turnpike.New(os.Getenv("TURNPIKE_BASE_URL"), os.Getenv("TURNPIKE_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	request := api.ImageBatchCreate_Requests{CustomID: "cover"}
	request.Body.Prompt = "A lighthouse at dusk, as a linocut."
	created, err := c.CreateImageBatchWithResponse(ctx, nil, api.ImageBatchCreate{Requests: []api.ImageBatchCreate_Requests{request}})
	if err != nil {
		log.Fatal(err)
	}
	batch, err := c.WaitForImageBatch(ctx, created.JSON200.ID, &turnpike.WaitOptions[api.ImageBatch]{
		OnProgress: func(b *api.ImageBatch) { log.Printf("%d%%", b.Progress) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(batch.Status, batch.Results[0].CustomID, batch.Results[0].Images[0].ContentType)
	// Output: completed cover image/png
}
