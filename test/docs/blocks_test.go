//go:build docs

package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// block is a fenced code block of a page.
type block struct {
	page     string // relative to the root of the repository
	line     int    // of the opening fence
	language string
	title    string // the file that the reader saves it as, if any
	text     string

	// From the HTML comment in front of the fence, if any:
	notRun     string // why it can't be run here
	background string // the name of the terminal in which it keeps running
	outputOf   string // the name of the terminal whose output it shows
	example    bool   // it shows something else than the output of the block before
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// isOutput reports whether the block shows what the block before it prints.
func (b block) isOutput() bool {
	return (b.language == "text" || b.language == "json") && b.title == "" && !b.example
}

// startsServer reports whether the reader starts a server with the block. On
// pages without such a block one is running already.
func (b block) startsServer() bool {
	return b.language == "sh" && b.notRun == "" && (strings.Contains(b.text, "turnpike serve") || strings.Contains(b.text, "make run"))
}

var (
	fence     = regexp.MustCompile("^```([a-z]*)(?: title=\"([^\"]+)\")?$")
	directive = regexp.MustCompile(`^<!-- (not run|background|output|example)(?:: (.+))? -->$`)
)

// blocksOf returns the blocks of a page in their order.
func blocksOf(path string) ([]block, error) {
	text, err := os.ReadFile(root + path)
	if err != nil {
		return nil, err
	}
	var all []block
	var next block
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if m := directive.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "not run":
				next.notRun = m[2]
			case "background":
				next.background = m[2]
			case "output":
				next.outputOf = m[2]
			case "example":
				next.example = true
			}
			continue
		}
		m := fence.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "```") {
				return nil, fmt.Errorf("%s:%d: unknown form of a fence: %s", path, i+1, line)
			}
			if line != "" && !strings.HasPrefix(line, "<!--") {
				next = block{} // a directive stands directly in front of its fence
			}
			continue
		}
		next.page, next.line, next.language, next.title = path, i+1, m[1], m[2]
		end := i + 1
		for end < len(lines) && lines[end] != "```" {
			end++
		}
		if end == len(lines) {
			return nil, fmt.Errorf("%s:%d: the block has no end", path, i+1)
		}
		next.text = strings.Join(lines[i+1:end], "\n") + "\n"
		all = append(all, next)
		next, i = block{}, end
	}
	return all, nil
}
