package fetch

import (
	"net/http"
	"strings"
	"testing"
)

func TestToUTF8(t *testing.T) {
	long := strings.Repeat("<!-- ascii only -->", 100) // over 1,024 bytes
	const (
		privet1251 = "\xcf\xf0\xe8\xe2\xe5\xf2"
		privetKOI  = "\xf0\xd2\xc9\xd7\xc5\xd4"
		privet     = "Привет"
	)
	tests := []struct {
		name, contentType, body string
		want, charset           string
	}{
		{"header", "text/html; charset=windows-1251", privet1251, privet, "windows-1251"},
		{"header in capitals and quotes", `TEXT/HTML; Charset="KOI8-R"`, privetKOI, privet, "koi8-r"},
		{"meta", "text/html", `<meta charset=windows-1251>` + privet1251, `<meta charset=windows-1251>` + privet, "windows-1251"},
		{"meta http-equiv", "text/html", `<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=windows-1251">` + privet1251,
			`<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=windows-1251">` + privet, "windows-1251"},
		{"meta after 1,024 bytes", "text/html", long + `<meta charset="windows-1251">` + privet1251,
			long + `<meta charset="windows-1251">` + privet, "windows-1251"},
		{"meta in a comment does not count", "text/html", `<!-- <meta charset=windows-1251> -->` + privet, `<!-- <meta charset=windows-1251> -->` + privet, "utf-8"},
		{"meta in a script does not count", "text/html", `<script>"<meta charset=koi8-r>"</script>` + privet, `<script>"<meta charset=koi8-r>"</script>` + privet, "utf-8"},
		{"content without http-equiv does not count", "text/html", `<meta name=d content="charset=koi8-r">` + privet, `<meta name=d content="charset=koi8-r">` + privet, "utf-8"},
		{"unknown meta, then a known one", "text/html", `<meta charset=nonsense><meta charset=koi8-r>` + privetKOI, `<meta charset=nonsense><meta charset=koi8-r>` + privet, "koi8-r"},
		{"header before meta", "text/html; charset=utf-8", `<meta charset=windows-1251>` + privet, `<meta charset=windows-1251>` + privet, "utf-8"},
		{"mark before header", "text/html; charset=windows-1251", "\ufeff" + privet, privet, "utf-8"},
		{"utf-16 by mark", "text/html", "\xff\xfeh\x00i\x00", "hi", "utf-16le"},
		{"utf-16be by mark", "text/plain", "\xfe\xff\x00h\x00i", "hi", "utf-16be"},
		{"utf-16 by header", "text/html; charset=utf-16le", "h\x00i\x00", "hi", "utf-16le"},
		{"utf-16 by meta is a lie", "text/html", `<meta charset=utf-16>é`, `<meta charset=utf-16>é`, "utf-8"},
		{"unknown in header, meta decides", "text/html; charset=nonsense", `<meta charset=koi8-r>` + privetKOI, `<meta charset=koi8-r>` + privet, "koi8-r"},
		{"malformed header", "text/html; charset=", privet, privet, "utf-8"},
		{"nothing said, ascii start", "text/html", long + privet, long + privet, "utf-8"},
		{"nothing said, not utf-8", "text/html", "caf\xe9", "café", "windows-1252"},
		{"utf-8 said, broken", "text/html; charset=utf-8", "a\xffb", "a\ufffdb", "utf-8"},
		{"latin1 is windows-1252", "text/html; charset=iso-8859-1", "\x80", "€", "windows-1252"},
		{"shift_jis", "text/html; charset=Shift_JIS", "\x93\xfa\x96\x7b", "日本", "shift_jis"},
		{"gbk", "text/html; charset=gb2312", "\xc4\xe3\xba\xc3", "你好", "gbk"},
		{"xml declaration", "application/xml", `<?xml version="1.0" encoding="windows-1251"?><a>` + privet1251 + `</a>`,
			`<?xml version="1.0" encoding="windows-1251"?><a>` + privet + `</a>`, "windows-1251"},
		{"xml of a kind", "application/rss+xml", `<?xml version='1.0' encoding='ISO-8859-1'?>` + "\xe9", `<?xml version='1.0' encoding='ISO-8859-1'?>é`, "windows-1252"},
		{"json is utf-8", "application/json; charset=iso-8859-1", `"é"`, `"é"`, "utf-8"},
		{"json with a mark", "application/json", "\ufeff{}", "{}", "utf-8"},
		{"json that is not, by header", "application/ld+json; charset=windows-1251", privet1251, privet, "windows-1251"},
		{"plain", "text/plain", "caf\xe9", "café", "windows-1252"},
		{"no type, html", "", "<html><meta charset=koi8-r>" + privetKOI, "<html><meta charset=koi8-r>" + privet, "koi8-r"},
		{"binary", "image/png", "\x89PNG\r\n\xff", "\x89PNG\r\n\xff", ""},
		{"binary with a charset", "application/octet-stream; charset=windows-1251", privet1251, privet1251, ""},
		{"no type, binary", "", "\x89PNG\r\n\x1a\n\xff", "\x89PNG\r\n\x1a\n\xff", ""},
		{"empty", "text/html", "", "", "utf-8"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text, name := toUTF8([]byte(test.body), test.contentType)
			if string(text) != test.want || name != test.charset {
				t.Errorf("got %q from %q\nwant %q from %q", text, name, test.want, test.charset)
			}
		})
	}
}

func TestPageCharsetByMeta(t *testing.T) {
	site := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><head><meta charset='windows-1251'></head>\xcf\xf0\xe8\xe2\xe5\xf2"))
	})
	page, _, err := get(t, open(t, Options{}), site.URL)
	if err != nil {
		t.Fatal(err)
	}
	if page.Charset != "windows-1251" || !strings.HasSuffix(string(page.Body), "Привет") || page.ContentType != "text/html" {
		t.Errorf("got %q from %q", page.Body, page.Charset)
	}
}

func TestFilePageIsDecodedLikeAResponse(t *testing.T) {
	page := FilePage([]byte("\xcf\xf0\xe8\xe2\xe5\xf2"), "text/html; charset=windows-1251")
	if page.Status != http.StatusOK || page.ContentType != "text/html" || page.Charset != "windows-1251" || string(page.Body) != "Привет" {
		t.Errorf("got %+v", page)
	}
}

func TestMediaType(t *testing.T) {
	for header, want := range map[string]string{
		"": "", "text/html": "text/html", " Text/HTML ; charset=x": "text/html",
		"text/html; charset=utf-8; charset=utf-8": "text/html", "text/html;=": "text/html", "garbage": "garbage",
	} {
		if got := mediaType(header); got != want {
			t.Errorf("%q is %q, want %q", header, got, want)
		}
	}
}
