package espeak

import (
	"context"
	"io"
	"regexp"
	"strings"
	"sync"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
)

// openAIVoices maps OpenAI's voices to different voices of espeak-ng.
var openAIVoices = map[string]string{
	"alloy":   "en-us+m3",
	"ash":     "en-us+m1",
	"ballad":  "en+m7",
	"cedar":   "en-us+m6",
	"coral":   "en-us+f2",
	"echo":    "en-us+m2",
	"fable":   "en+m5",
	"marin":   "en-us+f5",
	"nova":    "en-us+f3",
	"onyx":    "en-us+m4",
	"sage":    "en+f4",
	"shimmer": "en-us+f1",
	"verse":   "en+m8",
}

// voiceName matches a voice of espeak-ng: a language, optionally with a plus and a
// variant. It never matches a path.
var voiceName = regexp.MustCompile(`^[a-z0-9][a-z0-9+-]{0,39}$`)

func (e *Espeak) voice(ctx context.Context, name string) (string, error) {
	if own, ok := openAIVoices[name]; ok {
		return own, nil
	}
	unknown := fault.Invalid("voice", "voice must be alloy, echo, fable, nova, onyx or another of OpenAI's names, "+
		"or a voice of espeak-ng such as en-gb, de, fr+f3 or ja. `espeak-ng --voices` lists them.")
	if !voiceName.MatchString(name) {
		return "", unknown
	}
	known, err := e.voices.load(ctx, e.path)
	if err != nil {
		return "", failure(err)
	}
	language, variant, hasVariant := strings.Cut(name, "+")
	file, ok := known[language]
	switch {
	case !ok:
		return "", unknown
	case !hasVariant:
		return name, nil
	case known[variantDir+variant] == "":
		return "", unknown
	}
	// espeak-ng accepts a variant only after a file name.
	return file + "+" + variant, nil
}

// voices caches the installed voices and their files. Names are checked against
// it, because espeak-ng ignores unknown variants and crashes on some unknown names.
type voices struct {
	mu    sync.Mutex
	known map[string]string
}

const variantDir = "!v/"

func (v *voices) load(ctx context.Context, path string) (map[string]string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known != nil {
		return v.known, nil
	}
	known := map[string]string{}
	for _, list := range []string{"--voices", "--voices=variant"} {
		out, err := audio.Program(ctx, nil, path, list)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(out) //budget:own a list of the installed program
		out.Close()
		if err != nil {
			return nil, err
		}
		addVoices(known, string(text))
	}
	v.known = known
	return known, nil
}

// addVoices parses a list of voices. Its columns are priority, language, age and
// gender, name, file, and in brackets other languages.
func addVoices(known map[string]string, list string) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] == "Pty" {
			continue
		}
		name, file := fields[1], fields[4]
		if strings.HasPrefix(file, variantDir) {
			known[file] = file
			continue
		}
		// The first voice of a language is the default.
		if known[name] == "" {
			known[name] = file
		}
		for _, other := range fields[5:] {
			if language, ok := strings.CutPrefix(other, "("); ok && known[language] == "" {
				known[language] = file
			}
		}
	}
}
