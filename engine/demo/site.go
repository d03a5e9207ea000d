package demo

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// siteHost is the shop's name: reserved by RFC 2606, so that no demo can
	// ever reach somebody.
	siteHost    = "shop.example"
	productPath = "/product/"
	robotsPath  = "/robots.txt"
)

// How many of each thing a page holds that is not about its product, so that it
// has the 20 KB of an ordinary one.
const (
	popularProducts = 50
	reviews         = 26
)

// Site is a shop of products 1 to pages: /product/{ID}, a list of some of them
// at /, and /robots.txt. It is deterministic, safe for concurrent use, and
// cheap enough to stand beside what a benchmark measures.
func Site(pages int) http.Handler {
	const asHTML = "text/html; charset=utf-8"
	rest := appendRest(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+robotsPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, "text/plain; charset=utf-8", []byte("User-agent: *\nDisallow: /basket\n"))
	})
	mux.HandleFunc("GET "+productPath+"{id}", func(w http.ResponseWriter, r *http.Request) {
		n, ok := number(r.PathValue("id"))
		if !ok || n > pages {
			http.NotFound(w, r)
			return
		}
		answer(w, asHTML, append(product{n}.appendPage(nil), rest...))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, asHTML, front(pages))
	})
	return mux
}

func answer(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a client that has gone needs no answer
}

func front(pages int) []byte {
	b := []byte("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>The Invented Shop</title></head><body><h1>The Invented Shop</h1>\n<ul>\n")
	for n := 1; n <= min(pages, 100); n++ {
		b = fmt.Appendf(b, "<li><a href=\"%s%s\">%s</a></li>\n", productPath, ID(n), html.EscapeString(product{n}.title()))
	}
	return append(b, "</ul></body></html>\n"...)
}

// Page is the n-th product's page, n from 1: about 20 KB of HTML in UTF-8. The
// caller owns it.
func Page(n int) []byte { return appendRest(product{n}.appendPage(nil)) }

// appendPage appends what a page has of its own.
func (p product) appendPage(b []byte) []byte {
	b = slices.Grow(b, 24<<10) // room for the rest as well
	return p.appendProduct(p.appendHead(b))
}

// appendRest appends what all pages end with.
func appendRest(b []byte) []byte {
	return append(appendPopular(appendReviews(b)), `<footer><p>The Invented Shop sells nothing, ships nowhere and answers to nobody.</p></footer>
</body>
</html>
`...)
}

func (p product) appendHead(b []byte) []byte {
	title := html.EscapeString(p.title())
	b = fmt.Appendf(b, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%[1]s | The Invented Shop</title>
<meta property="og:title" content="%[1]s">
<meta property="og:site_name" content="The Invented Shop">
<link rel="canonical" href="http://%[2]s%[3]s%[4]s">
<style>body{font:16px/1.5 serif;margin:0 auto;max-width:60rem}nav a{padding:0 1rem}.price{font-size:1.5rem}.popular li{display:inline-block;width:14rem}</style>
`, title, siteHost, productPath, ID(p.n))
	b = append(b, "<script type=\"application/ld+json\">"...)
	b = p.appendLinkedData(b)
	return append(b, `</script>
</head>
<body>
<nav><a href="/">Start</a><a href="/basket">Basket</a><a href="/help">Help</a><a href="/about">About us</a></nav>
`...)
}

// appendLinkedData appends the product as schema.org has it, which is the only
// place where the page tells its availability and its rating.
func (p product) appendLinkedData(b []byte) []byte {
	data := map[string]any{
		"@context": "https://schema.org", "@type": "Product", "sku": ID(p.n), "name": p.title(), "image": p.images(),
		"offers": map[string]any{
			"@type": "Offer", "price": cents(p.price()), "priceCurrency": "USD", "availability": "https://schema.org/" + p.stock(),
		},
	}
	if rating := p.rating(); rating != "" {
		data["aggregateRating"] = map[string]any{"@type": "AggregateRating", "ratingValue": rating, "reviewCount": reviews}
	}
	text, err := json.Marshal(data) // escapes <, > and &, as a script in HTML needs it
	if err != nil {
		panic(err) // texts always encode
	}
	return append(b, text...)
}

func (p product) appendProduct(b []byte) []byte {
	updated := p.updated()
	b = fmt.Appendf(b, `<main>
<h1>%s</h1>
<p class="price">%s</p>
<p class="updated">Last checked <time datetime="%s">%s</time></p>
<div class="gallery">
`, html.EscapeString(p.title()), shown(p.price()), updated.Format(time.RFC3339), updated.Format("2 January 2006"))
	for i, image := range p.images() {
		b = fmt.Appendf(b, "<img class=\"gallery\" src=\"%s\" alt=\"View %d\" width=\"640\" height=\"480\">\n", image, i+1)
	}
	b = append(b, "</div>\n<div class=\"description\">\n"...)
	for i := range 4 {
		b = fmt.Appendf(b, "<p>%s %s</p>\n", p.sentence(i), p.sentence(i+10))
	}
	return append(b, "</div>\n</main>\n"...)
}

func (p product) sentence(i int) string { return sentences[p.draw(100+i, len(sentences))] }

func appendReviews(b []byte) []byte {
	b = append(b, "<section class=\"reviews\"><h2>What customers say about the shop</h2>\n"...)
	for i := range reviews {
		p := product{i + 1}
		stars := 1 + p.draw(200, 5)
		b = fmt.Appendf(b, "<article class=\"review\"><h3>%s</h3><p class=\"stars\" title=\"%d of 5\">%s</p><p>%s %s</p><p class=\"by\">A customer, %d days ago</p></article>\n",
			things[p.draw(300, len(things))], stars, strings.Repeat("★", stars), p.sentence(20), p.sentence(50), 1+p.draw(400, 300))
	}
	return append(b, "</section>\n"...)
}

func appendPopular(b []byte) []byte {
	b = append(b, "<section class=\"popular\"><h2>Popular this week</h2>\n<ul>\n"...)
	for i := range popularProducts {
		p := product{i + 1}
		b = fmt.Appendf(b, "<li><a class=\"popular\" href=\"%[1]s%[2]s\"><img src=\"%[3]s%[2]s/small.jpg\" alt=\"\" width=\"120\" height=\"90\"><span>%[4]s</span></a> <span class=\"popular-price\">%[5]s</span></li>\n",
			productPath, ID(p.n), imageHost, html.EscapeString(p.title()), shown(p.price()))
	}
	return append(b, "</ul></section>\n"...)
}
