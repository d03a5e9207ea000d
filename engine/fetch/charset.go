package fetch

import (
	"bytes"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
)

// metaSearch is how far into a page a <meta charset> is looked for. The
// standard stops at 1,024 bytes, where many real pages have not come to it.
const metaSearch = 64 << 10

const (
	charsetUTF8    = "utf-8"
	charsetDefault = "windows-1252"
)

// xmlDeclaration finds the encoding of an XML declaration.
var xmlDeclaration = regexp.MustCompile(`^\s*<\?xml[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)

// contentCharset finds the label in a <meta http-equiv>'s content.
var contentCharset = regexp.MustCompile(`(?i)charset\s*=\s*["']?([^\s"';,]+)`)

// toUTF8 returns a text body in UTF-8, without a byte order mark and with
// U+FFFD for what is not a character, and the name of the encoding it had. A
// binary body is returned as it is, with no name.
func toUTF8(body []byte, contentType string) ([]byte, string) {
	name := charsetOf(body, contentType)
	if name == "" {
		return body, ""
	}
	if name == charsetUTF8 {
		body = bytes.TrimPrefix(body, []byte("\ufeff"))
		if utf8.Valid(body) {
			return body, name
		}
		return bytes.ToValidUTF8(body, []byte("\ufffd")), name
	}
	encoding, _ := charset.Lookup(name)
	text, err := encoding.NewDecoder().Bytes(body)
	if err != nil { // decoders write U+FFFD rather than fail
		return bytes.ToValidUTF8(body, []byte("\ufffd")), charsetUTF8
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), name
}

// charsetOf chooses the encoding: a byte order mark, then the header, then
// what the format itself says, then UTF-8 if the body is valid as such, then
// what browsers assume. It is "" for binary.
func charsetOf(body []byte, contentType string) string {
	media := mediaType(contentType)
	if media == "" {
		media = mediaType(http.DetectContentType(body))
	}
	kind := kindOf(media)
	if kind == kindBinary {
		return ""
	}
	if name := markedCharset(body); name != "" {
		return name
	}
	if kind == kindJSON && utf8.Valid(body) {
		return charsetUTF8 // RFC 8259 §8.1, whatever the header says
	}
	if _, params, err := mime.ParseMediaType(contentType); err == nil {
		if _, name := charset.Lookup(params["charset"]); name != "" {
			return name
		}
	}
	if name := declaredCharset(body, kind); name != "" {
		return name
	}
	if kind == kindJSON || kind == kindXML || utf8.Valid(body) {
		return charsetUTF8
	}
	return charsetDefault
}

type textKind int

const (
	kindBinary textKind = iota
	kindText
	kindHTML
	kindXML
	kindJSON
)

func kindOf(media string) textKind {
	switch {
	case media == "text/html" || media == "application/xhtml+xml":
		return kindHTML
	case media == "text/xml" || media == "application/xml" || strings.HasSuffix(media, "+xml"):
		return kindXML
	case strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json") || media == "application/x-ndjson":
		return kindJSON
	case strings.HasPrefix(media, "text/"), strings.HasSuffix(media, "javascript"), media == "application/ecmascript":
		return kindText
	}
	return kindBinary
}

// markedCharset is the encoding of a byte order mark, "" without one.
func markedCharset(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte{0xEF, 0xBB, 0xBF}):
		return charsetUTF8
	case bytes.HasPrefix(body, []byte{0xFE, 0xFF}):
		return "utf-16be"
	case bytes.HasPrefix(body, []byte{0xFF, 0xFE}):
		return "utf-16le"
	}
	return ""
}

// declaredCharset is what the document says of itself, "" if nothing. A
// document that can be read as far as its declaration is not in UTF-16,
// whatever that says.
func declaredCharset(body []byte, kind textKind) string {
	name := ""
	switch kind {
	case kindHTML:
		name = metaCharset(body)
	case kindXML:
		if m := xmlDeclaration.FindSubmatch(body[:min(len(body), 512)]); m != nil {
			_, name = charset.Lookup(string(m[1]))
		}
	}
	if strings.HasPrefix(name, "utf-16") {
		return charsetUTF8
	}
	return name
}

// metaCharset is the encoding that the first telling <meta> names.
func metaCharset(body []byte) string {
	z := html.NewTokenizer(bytes.NewReader(body[:min(len(body), metaSearch)]))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return ""
		case html.StartTagToken, html.SelfClosingTagToken:
			tag, more := z.TagName()
			if !more || string(tag) != "meta" {
				continue
			}
			if _, name := charset.Lookup(metaLabel(z)); name != "" {
				return name
			}
		}
	}
}

// metaLabel is the encoding's label in the <meta> that z stands on.
func metaLabel(z *html.Tokenizer) string {
	var label, content string
	pragma := false
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "charset":
			label = string(value)
		case "content":
			content = string(value)
		case "http-equiv":
			pragma = strings.EqualFold(string(value), "content-type")
		}
	}
	if m := contentCharset.FindStringSubmatch(content); label == "" && pragma && m != nil {
		label = m[1]
	}
	return label
}
