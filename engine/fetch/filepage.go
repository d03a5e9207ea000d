package fetch

import "net/http"

// FilePage is a page that was saved rather than fetched: body is decoded as
// that of a response with this Content-Type would be. The page has no URLs.
func FilePage(body []byte, contentType string) *Page {
	p := &Page{
		Status:      http.StatusOK,
		Header:      http.Header{"Content-Type": {contentType}},
		ContentType: mediaType(contentType),
	}
	p.Body, p.Charset = toUTF8(body, contentType)
	return p
}
