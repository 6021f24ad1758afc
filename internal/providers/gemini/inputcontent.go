package gemini

import (
	"net/url"
	"path"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

var contentTypes = []string{"text", "image_url", "input_audio", "file"}

// contentParts translates the content of a message. Empty text is dropped.
func (b *builder) contentParts(m *openai.Message, at string) (parts []part, err error) {
	err = m.EachPart(at, contentTypes, func(p *openai.Part, at string) (err error) {
		var media part
		switch p.Type {
		case "image_url":
			b.images++
			media, err = b.imagePart(p.ImageURL.URL, at+".image_url.url")
		case "input_audio":
			b.audioBytes += len(p.InputAudio.Data) / 4 * 3
			media, err = audioPart(p.InputAudio, at+".input_audio")
		case "file":
			media, err = b.filePart(p.File, at+".file")
		default:
			parts = b.appendText(parts, p.PlainText())
			return nil
		}
		parts = append(parts, media)
		return err
	})
	return parts, err
}

func (b *builder) appendText(parts []part, text string) []part {
	if text == "" {
		return parts
	}
	b.textBytes += len(text)
	return append(parts, part{Text: text})
}

// filePart translates a PDF, whose pages Gemini reads as images, or text.
func (b *builder) filePart(f *openai.File, at string) (part, error) {
	mediaType, data, err := f.Content(at)
	if err != nil {
		return part{}, err
	}
	at += ".file_data"
	switch {
	case !isBase64(data):
		return part{}, fault.Invalid(at, "%s must be a data URL in base64.", at)
	case mediaType == "application/pdf":
		b.images++
	case strings.HasPrefix(mediaType, "text/"):
		mediaType = "text/plain" // Gemini detects the format of the text
		b.textBytes += len(data) / 4 * 3
	default:
		return part{}, fault.Invalid(at, "%s must be an application/pdf or text, not %.40q.", at, mediaType)
	}
	return part{InlineData: &blob{MimeType: mediaType, Data: data}}, nil
}

func audioPart(a *openai.InputAudio, at string) (part, error) {
	if a.Format != "wav" && a.Format != "mp3" {
		return part{}, fault.Invalid(at+".format", "%s.format must be wav or mp3.", at)
	}
	if !isBase64(a.Data) {
		return part{}, fault.Invalid(at+".data", "%s.data must be base64.", at)
	}
	return part{InlineData: &blob{MimeType: "audio/" + a.Format, Data: a.Data}}, nil
}

func (b *builder) imagePart(address, at string) (part, error) {
	if openai.HasScheme(address, "data") {
		mediaType, data, ok := openai.ParseDataURL(address)
		switch {
		case !ok || !isBase64(data):
			return part{}, fault.Invalid(at, "%s must have base64 data, such as data:image/png;base64,….", at)
		case !strings.HasPrefix(mediaType, "image/"):
			return part{}, fault.Invalid(at, "%s must be an image, such as data:image/png;base64,….", at)
		case mediaType == "image/jpg": // a common mistake
			mediaType = "image/jpeg"
		}
		return part{InlineData: &blob{MimeType: mediaType, Data: data}}, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return part{}, fault.Invalid(at, "%s must be an https or data URL.", at)
	}
	if !b.model.fetchesURLs() {
		return part{}, fault.Invalid(at, "%s must be a data URL, because this model does not fetch URLs.", at)
	}
	mediaType, ok := imageType(u)
	if !ok {
		return part{}, fault.Invalid(at, "%s must be the URL of an image.", at)
	}
	return part{FileData: &fileData{MimeType: mediaType, FileURI: address}}, nil
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

// otherTypes are extensions of files that Gemini reads and that aren't images.
const otherTypes = " .pdf .txt .csv .html .htm .xml .json .md .mp4 .mpeg .mpg .mov .avi .webm .wmv .flv .3gp .mp3 .wav .aac .ogg .flac .aiff "

// imageType returns the media type to declare for a URL. It is always an image,
// because a video would cost more than was reserved. A URL without an extension
// is declared as JPEG, the most common type.
func imageType(u *url.URL) (string, bool) {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	switch {
	case host == "generativelanguage.googleapis.com": // files of the operator's account
		return "", false
	case host == "youtu.be", strings.HasSuffix("."+host, ".youtube.com"): // a video
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
