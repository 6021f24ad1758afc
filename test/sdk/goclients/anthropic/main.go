// Anthropic runs the shared conversation of the SDK tests with anthropic-sdk-go. It is in a module
// of its own, so that the product doesn't depend on the SDK.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

var (
	model     = os.Getenv("MODEL")
	spoken    = os.Getenv("SPOKEN")
	simulated = os.Getenv("SIMULATED") != ""
)

func main() {
	client := anthropic.NewClient(option.WithBaseURL(os.Getenv("BASE_URL")), option.WithAPIKey(os.Getenv("KEY")), option.WithMaxRetries(0))
	for _, step := range []struct {
		run   func(context.Context, anthropic.Client) error
		shows []string
	}{{text, []string{"text"}}, {stream, []string{"streaming"}}, {tools, []string{"tools"}}, {media, []string{"structured output", "images"}}, {failures, []string{"errors", "cancel"}}} {
		if err := step.run(context.Background(), client); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, name := range step.shows {
			fmt.Println("ok: " + name)
		}
	}
}

// sim returns a magic input for the simulator.
func sim(input string) string {
	if !simulated {
		return ""
	}
	return " [[sim:" + input + "]]"
}

func ask(blocks ...anthropic.ContentBlockParamUnion) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{Model: anthropic.Model(model), MaxTokens: 1024, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(blocks...)}}
}

func want(what string, got, want any) error {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func text(ctx context.Context, c anthropic.Client) error {
	m, err := c.Messages.New(ctx, ask(anthropic.NewTextBlock("What is the answer?"+sim("text="+spoken))))
	if err != nil {
		return err
	}
	if m.Usage.InputTokens == 0 || m.Usage.OutputTokens == 0 || m.StopReason != "end_turn" {
		return fmt.Errorf("got %s", m.RawJSON())
	}
	return want("text", m.Content[0].Text, spoken)
}

// accumulate reads a stream to its end.
func accumulate(ctx context.Context, c anthropic.Client, p anthropic.MessageNewParams) (m anthropic.Message, err error) {
	events := c.Messages.NewStreaming(ctx, p)
	for events.Next() {
		if err := m.Accumulate(events.Current()); err != nil {
			return m, err
		}
	}
	return m, events.Err()
}

func stream(ctx context.Context, c anthropic.Client) error {
	m, err := accumulate(ctx, c, ask(anthropic.NewTextBlock("What is the answer?"+sim("text="+spoken))))
	if err != nil {
		return err
	}
	return want("streamed text", m.Content[0].Text, spoken)
}

func tools(ctx context.Context, c anthropic.Client) error {
	name, arguments := os.Getenv("TOOL"), os.Getenv("ARGS")
	p := ask(anthropic.NewTextBlock("How is the weather in Paris?" + sim("script=tool:"+name+arguments+";text:"+spoken)))
	p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: name, InputSchema: anthropic.ToolInputSchemaParam{
		Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"}}}}}
	first, err := c.Messages.New(ctx, p)
	if err != nil {
		return err
	}
	use := first.Content[len(first.Content)-1]
	if use.Name != name || first.StopReason != "tool_use" {
		return fmt.Errorf("no tool use: %s", first.RawJSON())
	}
	if err := sameJSON(string(use.Input), arguments); err != nil {
		return err
	}
	next := p
	next.Messages = append(p.Messages, first.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(use.ID, "sunny", false)))
	second, err := c.Messages.New(ctx, next)
	if err != nil {
		return err
	}
	if err := want("text after the tool", second.Content[0].Text, spoken); err != nil {
		return err
	}
	streamed, err := accumulate(ctx, c, p)
	if err != nil {
		return err
	}
	return sameJSON(string(streamed.Content[len(streamed.Content)-1].Input), arguments)
}

func sameJSON(got, wanted string) error {
	var a, b any
	if err := errors.Join(json.Unmarshal([]byte(got), &a), json.Unmarshal([]byte(wanted), &b)); err != nil {
		return err
	}
	return want("arguments", a, b)
}

func media(ctx context.Context, c anthropic.Client) error {
	p := ask(anthropic.NewTextBlock("Describe a person" + sim("text="+os.Getenv("PERSON"))))
	p.OutputConfig = anthropic.OutputConfigParam{Format: anthropic.JSONOutputFormatParam{Schema: map[string]any{"type": "object", "additionalProperties": false,
		"required": []string{"name", "age"}, "properties": map[string]any{"name": map[string]any{"type": "string"}, "age": map[string]any{"type": "integer"}}}}}
	m, err := c.Messages.New(ctx, p)
	if err != nil {
		return err
	}
	if err := sameJSON(m.Content[0].Text, os.Getenv("PERSON")); err != nil {
		return err
	}
	m, err = c.Messages.New(ctx, ask(anthropic.NewTextBlock("What is this?"+sim("text="+spoken)), anthropic.NewImageBlockBase64("image/png", os.Getenv("PIXEL"))))
	if err != nil {
		return err
	}
	return want("text about an image", m.Content[0].Text, spoken)
}

func failures(ctx context.Context, c anthropic.Client) error {
	p := ask(anthropic.NewTextBlock("hi"))
	p.Model = "no-such-model"
	_, err := c.Messages.New(ctx, p)
	var failure *anthropic.Error
	if !errors.As(err, &failure) || failure.StatusCode != 404 {
		return fmt.Errorf("unknown model: %w", err)
	}
	found := false
	for pager := c.Models.ListAutoPaging(ctx, anthropic.ModelListParams{}); pager.Next(); {
		found = found || pager.Current().ID == model
	}
	if !found {
		return errors.New("the model is not listed")
	}
	if !simulated {
		return nil
	}
	canceled, cancel := context.WithCancel(ctx)
	events := c.Messages.NewStreaming(canceled, ask(anthropic.NewTextBlock("[[sim:length=500]] [[sim:chunk_delay=50ms]]")))
	defer events.Close()
	for n := 0; events.Next(); n++ {
		if n == 3 {
			cancel()
		}
	}
	if err := events.Err(); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("canceled stream: %w", err)
	}
	return nil
}
