package gemini

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

type chatPart struct {
	Type       string     `json:"type"`
	Text       *string    `json:"text"`
	Refusal    *string    `json:"refusal"`
	ImageURL   *chatImage `json:"image_url"`
	InputAudio *chatAudio `json:"input_audio"`
	File       *chatFile  `json:"file"`
}

type chatImage struct {
	URL string `json:"url"`
}

type chatAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

type chatFile struct {
	ID   string `json:"file_id"`
	Data string `json:"file_data"`
}

// parts translates a message's content. Empty texts are left out.
func (t *conversation) parts(param string, m *chatMessage) ([]part, error) {
	switch m.Content.kind {
	case jsontext.KindString:
		return t.appendText(nil, m.Content.text), nil
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, fault.Missing(param, "%s is required: a string or an array of parts", param)
	case jsontext.KindBeginArray:
	default:
		return nil, fault.Invalid(param, "%s must be a string or an array of parts", param)
	}
	var parts []part
	for i := range m.Content.parts {
		at := fmt.Sprintf("%s[%d]", param, i)
		p := &m.Content.parts[i]
		switch {
		case p.Type == "text" && p.Text != nil:
			parts = t.appendText(parts, *p.Text)
		case p.Type == "text":
			return nil, fault.Missing(at+".text", "%s.text is required: a string", at)
		case p.Type == "refusal" && m.Role == "assistant" && p.Refusal != nil:
			parts = t.appendText(parts, *p.Refusal)
		case m.Role != "user":
			return nil, fault.Invalid(at+".type", "%s.type must be text: other parts belong in a user message", at)
		default:
			media, err := t.media(at, p)
			if err != nil {
				return nil, err
			}
			parts = append(parts, media)
		}
	}
	return parts, nil
}

func (t *conversation) appendText(parts []part, text string) []part {
	if text == "" {
		return parts
	}
	t.textBytes += len(text)
	return append(parts, part{Text: text})
}

func (t *conversation) media(param string, p *chatPart) (part, error) {
	switch p.Type {
	case "image_url":
		t.images++
		param += ".image_url"
		if p.ImageURL == nil || p.ImageURL.URL == "" {
			return part{}, fault.Missing(param+".url", "%s.url is required: an https or data URL", param)
		}
		return t.image(param+".url", p.ImageURL.URL)
	case "input_audio":
		param += ".input_audio"
		if p.InputAudio == nil || p.InputAudio.Data == "" {
			return part{}, fault.Missing(param+".data", "%s.data is required: base64 audio", param)
		}
		t.audioBytes += len(p.InputAudio.Data) / 4 * 3
		return audio(param, p.InputAudio)
	case "file":
		if p.File == nil {
			return part{}, fault.Missing(param+".file", "%s.file is required: an object with file_data", param)
		}
		return t.file(param+".file", p.File)
	case "":
		return part{}, fault.Missing(param+".type", "%s.type is required: text, image_url, input_audio or file", param)
	}
	return part{}, fault.Invalid(param+".type", "%s.type must be text, image_url, input_audio or file for this model", param)
}

// file translates a PDF, of whose pages Gemini makes images, or a text.
func (t *conversation) file(param string, f *chatFile) (part, error) {
	switch {
	case f.Data == "" && f.ID != "":
		return part{}, fault.Invalid(param+".file_id", "%s.file_id is not possible with this model's provider: send the file itself in file_data", param)
	case f.Data == "":
		return part{}, fault.Missing(param+".file_data", "%s.file_data is required: a data URL in base64", param)
	}
	param += ".file_data"
	mime, data, ok := readDataURL(f.Data)
	switch {
	case !ok:
		return part{}, fault.Invalid(param, "%s must be a data URL in base64", param)
	case mime == "application/pdf":
		t.images++
	case strings.HasPrefix(mime, "text/"):
		mime = "text/plain" // what the text is written in, Gemini sees
		t.textBytes += len(data) / 4 * 3
	default:
		return part{}, fault.Invalid(param, "%s must be an application/pdf or a text, not %.40q", param, mime)
	}
	return part{InlineData: &blob{MimeType: mime, Data: data}}, nil
}

// readDataURL reads data:image/png;base64,….
func readDataURL(address string) (mime, data string, ok bool) {
	rest, ok := strings.CutPrefix(address, "data:")
	if !ok {
		return "", "", false
	}
	kind, data, _ := strings.Cut(rest, ",")
	mime, _, _ = strings.Cut(kind, ";")
	return strings.ToLower(mime), data, strings.HasSuffix(kind, ";base64") && isBase64(data)
}

func audio(param string, a *chatAudio) (part, error) {
	if a.Format != "wav" && a.Format != "mp3" {
		return part{}, fault.Invalid(param+".format", "%s.format must be wav or mp3", param)
	}
	if !isBase64(a.Data) {
		return part{}, fault.Invalid(param+".data", "%s.data must be base64", param)
	}
	return part{InlineData: &blob{MimeType: "audio/" + a.Format, Data: a.Data}}, nil
}

func (t *conversation) image(param, address string) (part, error) {
	if strings.HasPrefix(address, "data:") {
		mime, data, ok := readDataURL(address)
		switch {
		case !ok:
			return part{}, fault.Invalid(param, "%s must have base64 data: data:image/png;base64,…", param)
		case !strings.HasPrefix(mime, "image/"):
			return part{}, fault.Invalid(param, "%s must be an image: data:image/png;base64,…", param)
		case mime == "image/jpg": // a common mistake
			mime = "image/jpeg"
		}
		return part{InlineData: &blob{MimeType: mime, Data: data}}, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return part{}, fault.Invalid(param, "%s must be an https or data URL", param)
	}
	if !t.model.fetchesURLs() {
		return part{}, fault.Invalid(param, "%s must be a data URL for this model, which fetches nothing from the web", param)
	}
	mime, ok := imageType(u)
	if !ok {
		return part{}, fault.Invalid(param, "%s must be the address of an image", param)
	}
	return part{FileData: &fileData{MimeType: mime, FileURI: address}}, nil
}

var imageTypes = map[string]string{
	".png":  "image/png",
	".jpg":  "image/jpeg",
	".jpeg": "image/jpeg",
	".webp": "image/webp",
	".heic": "image/heic",
	".heif": "image/heif",
	".gif":  "image/gif",
}

// otherTypes are extensions of what Gemini reads and is no image.
const otherTypes = " .pdf .txt .csv .html .htm .xml .json .md .mp4 .mpeg .mpg .mov .avi .webm .wmv .flv .3gp .mp3 .wav .aac .ogg .flac .aiff "

// imageType tells Gemini what to expect at an address. It is always an image:
// a film that came in as one would cost more than was reserved for it. An
// address without an extension is taken for a JPEG, the commonest.
func imageType(u *url.URL) (string, bool) {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	switch {
	case host == "generativelanguage.googleapis.com": // files that belong to the operator's key
		return "", false
	case host == "youtu.be", strings.HasSuffix("."+host, ".youtube.com"): // would be watched
		return "", false
	}
	extension := strings.ToLower(path.Ext(u.Path))
	if mime, ok := imageTypes[extension]; ok {
		return mime, true
	}
	if extension != "" && strings.Contains(otherTypes, " "+extension+" ") {
		return "", false
	}
	return "image/jpeg", true
}

// isBase64 accepts both alphabets, as Google's JSON does.
func isBase64(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '+', c == '/', c == '-', c == '_':
		default:
			return false
		}
	}
	return len(s) > 0 && len(s)%4 != 1
}
