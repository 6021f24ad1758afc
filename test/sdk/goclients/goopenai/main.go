// Goopenai runs go-openai, the client of sashabaranov: text, a stream, tools, the older functions, structured output, an
// image, errors and embeddings. It is in another module, so that the product doesn't depend on the client.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sashabaranov/go-openai"
)

var (
	ctx    = context.Background()
	model  = os.Getenv("MODEL")
	spoken = os.Getenv("SPOKEN")
	name   = os.Getenv("TOOL")
	schema = json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)
)

func main() {
	config := openai.DefaultConfig(os.Getenv("KEY"))
	config.BaseURL = os.Getenv("BASE_URL") + "/v1"
	client := openai.NewClientWithConfig(config)
	for _, step := range []struct {
		shows string
		run   func(*openai.Client) error
	}{{"text", text}, {"streaming", stream}, {"tools", tools}, {"functions", functions}, {"structured output", structured}, {"images", image}, {"errors", failures}, {"embeddings", embeddings}} {
		if err := step.run(client); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", step.shows, err)
			os.Exit(1)
		}
		fmt.Println("ok: " + step.shows)
	}
}

func ask(prompt string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{Model: model, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: prompt}}}
}

func want(got, want string) error {
	if got != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}

func complete(c *openai.Client, r openai.ChatCompletionRequest) (openai.ChatCompletionMessage, error) {
	res, err := c.CreateChatCompletion(ctx, r)
	if err != nil {
		return openai.ChatCompletionMessage{}, err
	}
	if res.Usage.TotalTokens == 0 {
		return openai.ChatCompletionMessage{}, errors.New("no usage")
	}
	return res.Choices[0].Message, nil
}

func text(c *openai.Client) error {
	m, err := complete(c, ask("Hi. [[sim:text="+spoken+"]]"))
	if err != nil {
		return err
	}
	return want(m.Content, spoken)
}

func stream(c *openai.Client) error {
	s, err := c.CreateChatCompletionStream(ctx, ask("Hi. [[sim:text="+spoken+"]]"))
	if err != nil {
		return err
	}
	defer s.Close()
	got := ""
	for {
		chunk, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return want(got, spoken)
		}
		if err != nil {
			return err
		}
		got += chunk.Choices[0].Delta.Content
	}
}

func tools(c *openai.Client) error {
	r := ask("How is the weather? [[sim:script=tool:" + name + os.Getenv("ARGS") + ";text:" + spoken + "]]")
	r.Tools = []openai.Tool{{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{Name: name, Parameters: schema}}}
	call, err := complete(c, r)
	if err != nil {
		return err
	}
	if len(call.ToolCalls) != 1 || call.ToolCalls[0].Function.Name != name {
		return fmt.Errorf("got %+v", call)
	}
	r.Messages = append(r.Messages, call, openai.ChatCompletionMessage{Role: "tool", Content: "sunny", ToolCallID: call.ToolCalls[0].ID})
	m, err := complete(c, r)
	if err != nil {
		return err
	}
	return want(m.Content, spoken)
}

func functions(c *openai.Client) error {
	r := ask("How is the weather?")
	r.Functions = []openai.FunctionDefinition{{Name: name, Parameters: schema}}
	r.FunctionCall = openai.FunctionCall{Name: name}
	m, err := complete(c, r)
	if err != nil {
		return err
	}
	if m.FunctionCall == nil || m.FunctionCall.Name != name {
		return fmt.Errorf("got %+v", m)
	}
	return nil
}

func structured(c *openai.Client) error {
	r := ask("Name a city.")
	r.ResponseFormat = &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONSchema,
		JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "city", Schema: schema}}
	m, err := complete(c, r)
	if err != nil {
		return err
	}
	var city struct{ City *string }
	if err := json.Unmarshal([]byte(m.Content), &city); err != nil || city.City == nil {
		return fmt.Errorf("got %s, %w", m.Content, err)
	}
	return nil
}

func image(c *openai.Client) error {
	r := ask("")
	r.Messages[0] = openai.ChatCompletionMessage{Role: "user", MultiContent: []openai.ChatMessagePart{{Type: openai.ChatMessagePartTypeText, Text: "What is this? [[sim:text=" + spoken + "]]"},
		{Type: openai.ChatMessagePartTypeImageURL, ImageURL: &openai.ChatMessageImageURL{URL: "data:image/png;base64," + os.Getenv("PIXEL")}}}}
	m, err := complete(c, r)
	if err != nil {
		return err
	}
	return want(m.Content, spoken)
}

func failures(c *openai.Client) error {
	r := ask("Hi.")
	r.Model = "no-such-model"
	_, err := c.CreateChatCompletion(ctx, r)
	var failure *openai.APIError
	if !errors.As(err, &failure) || failure.HTTPStatusCode != 404 || failure.Code != "model_not_found" {
		return fmt.Errorf("got %w", err)
	}
	return nil
}

func embeddings(c *openai.Client) error {
	res, err := c.CreateEmbeddings(ctx, openai.EmbeddingRequest{Model: openai.EmbeddingModel(os.Getenv("EMBEDDINGS")), Input: []string{"one", "two"}})
	if err != nil {
		return err
	}
	if len(res.Data) != 2 || len(res.Data[1].Embedding) == 0 {
		return fmt.Errorf("got %d embeddings", len(res.Data))
	}
	return nil
}
