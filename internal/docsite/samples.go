package docsite

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const jsonType = "application/json"

// samples returns a request in curl, Python, TypeScript and Go. The body may be nil.
func (o *operation) samples(path string, body *yaml.Node) []sample {
	if body != nil && o.body().Name != jsonType {
		return []sample{{"curl", o.curl(path, body)}} // a form with files
	}
	text := ""
	if body != nil {
		text = pretty(body)
	}
	return []sample{{"curl", o.curl(path, body)}, {"Python", o.python(path, text)}, {"TypeScript", o.typeScript(path, text)}, {"Go", o.golang(path, text)}}
}

func (o *operation) curl(path string, body *yaml.Node) string {
	var b strings.Builder
	b.WriteString("curl ")
	if o.Method != http.MethodGet && (o.Method != http.MethodPost || body == nil) {
		b.WriteString("-X " + o.Method + " ")
	}
	fmt.Fprintf(&b, "\"$TURNPIKE_BASE_URL%s\"", path)
	if o.Scope != "" {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $TURNPIKE_API_KEY\"")
	}
	switch {
	case body == nil:
	case o.body().Name == jsonType:
		fmt.Fprintf(&b, " \\\n  -H \"Content-Type: application/json\" \\\n  -d %s", quoteShell(pretty(body)))
	default:
		for i := 0; i+1 < len(body.Content); i += 2 {
			value := body.Content[i+1]
			if value.Kind == yaml.SequenceNode {
				value = value.Content[0]
			}
			fmt.Fprintf(&b, " \\\n  -F %s", quoteShell(body.Content[i].Value+"="+value.Value))
		}
	}
	return b.String()
}

func quoteShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (o *operation) python(path, body string) string {
	var b strings.Builder
	b.WriteString("import os, requests\n\n")
	fmt.Fprintf(&b, "response = requests.request(\n    %q,\n    os.environ[\"TURNPIKE_BASE_URL\"] + %q,\n", o.Method, path)
	if o.Scope != "" {
		b.WriteString("    headers={\"Authorization\": \"Bearer \" + os.environ[\"TURNPIKE_API_KEY\"]},\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "    json=%s,\n", indent(pythonLiterals(body), "    "))
	}
	b.WriteString(")\nresponse.raise_for_status()\nprint(response.text)")
	return b.String()
}

// pythonLiterals replaces JSON's literals outside of strings.
func pythonLiterals(body string) string {
	var b strings.Builder
	for i, part := range strings.Split(body, `"`) {
		if i > 0 {
			b.WriteByte('"')
		}
		if i%2 == 0 {
			part = strings.NewReplacer("true", "True", "false", "False", "null", "None").Replace(part)
		}
		b.WriteString(part)
	}
	return b.String()
}

func (o *operation) typeScript(path, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "const response = await fetch(process.env.TURNPIKE_BASE_URL + %q, {\n  method: %q,\n", path, o.Method)
	var headers []string
	if o.Scope != "" {
		headers = append(headers, "Authorization: `Bearer ${process.env.TURNPIKE_API_KEY}`")
	}
	if body != "" {
		headers = append(headers, `"Content-Type": "application/json"`)
	}
	if len(headers) > 0 {
		fmt.Fprintf(&b, "  headers: { %s },\n", strings.Join(headers, ", "))
	}
	if body != "" {
		fmt.Fprintf(&b, "  body: JSON.stringify(%s),\n", indent(body, "  "))
	}
	b.WriteString("});\nif (!response.ok) throw new Error(await response.text());\nconsole.log(await response.text());")
	return b.String()
}

func (o *operation) golang(path, body string) string {
	reader := "nil"
	if body != "" {
		reader = "strings.NewReader(" + quoteGo(body) + ")"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "req, err := http.NewRequest(%q, os.Getenv(\"TURNPIKE_BASE_URL\")+%q, %s)\nif err != nil {\n\treturn err\n}\n", o.Method, path, reader)
	if o.Scope != "" {
		b.WriteString("req.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"TURNPIKE_API_KEY\"))\n")
	}
	if body != "" {
		b.WriteString("req.Header.Set(\"Content-Type\", \"application/json\")\n")
	}
	b.WriteString("res, err := http.DefaultClient.Do(req)\nif err != nil {\n\treturn err\n}\ndefer res.Body.Close()\n_, err = io.Copy(os.Stdout, res.Body)\nreturn err")
	return b.String()
}

func quoteGo(text string) string {
	if strings.Contains(text, "`") {
		return strconv.Quote(text)
	}
	return "`" + text + "`"
}

func indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }
