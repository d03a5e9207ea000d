package parser

import "testing"

const itemPage = `<base href="/b/"><div itemscope itemtype="https://schema.org/WebPage"><h1 itemprop="name">Page</h1>
<div itemprop="mainEntity" itemscope itemtype="http://schema.org/Product http://example.com/Thing">
 <h2 itemprop="name"> Kettle </h2><a itemprop="url" href="k">Kettle</a><img itemprop="image" src="k1.jpg"><div><img itemprop="image" src="k2.jpg"></div>
 <span itemprop="sku productID" content="K-17">Nr. 17</span><time itemprop="releaseDate" datetime="2026-04-23">spring</time>
 <div itemprop="offers" itemscope itemtype="https://schema.org/Offer"><meta itemprop="price" content="19.90"><link itemprop="availability" href="https://schema.org/InStock"></div>
 <div itemprop="offers" itemscope itemtype="https://schema.org/Offer"><b itemprop="http://schema.org/price">21</b><p itemprop="name">Second</p></div>
</div></div><div itemscope itemtype="http://data-vocabulary.org/Product"><p itemprop="name">Other</p><p itemprop="late">yes</p></div><i itemprop="stray">x</i>`

func TestMicrodata(t *testing.T) {
	in := Input{Body: []byte(itemPage), FinalURL: "https://shop.example/p/1", Target: "1"}
	for _, c := range []struct {
		path, schema string
		field        Field
		want         string
	}{
		{"name", "", Field{}, `"Page"`},
		{"name", "Product", Field{}, `"Kettle"`},
		{"name", "https://schema.org/Product", Field{}, `"Kettle"`},
		{"name", "http://example.com/Thing", Field{}, `"Kettle"`},
		{"name", "http://data-vocabulary.org/Product", Field{}, `"Other"`},
		{"name", "Recipe", Field{}, "null?"},
		{"late", "", Field{}, `"yes"`},
		{"stray", "", Field{}, "null?"},
		{"sku", "Product", Field{}, `"K-17"`},
		{"productID", "Product", Field{}, `"K-17"`},
		{"releaseDate", "Product", Field{Type: "date"}, `"2026-04-23"`},
		{"url", "Product", Field{Type: "url"}, `"https://shop.example/b/k"`},
		{"image", "Product", Field{Many: true}, `["k1.jpg","k2.jpg"]`},
		{"offers.price", "Product", Field{Type: "decimal", Many: true}, `["19.90","21"]`},
		{"mainEntity.offers.price", "", Field{}, `"19.90"`},
		{"price", "Product", Field{}, "null?"},
		{"price", "Offer", Field{}, `"19.90"`},
		{"offers.availability", "Product", Field{}, `"https://schema.org/InStock"`},
		{"offers.name", "Product", Field{}, `"Second"`},
		{"name.price", "Product", Field{}, "null?"},
		{"offers", "Product", Field{}, "!validation: field x: is an object where one value was expected"},
	} {
		c.field.Rule = Rule{Microdata: c.path, Schema: c.schema}
		if got := parseField(t, in, c.field); got != c.want {
			t.Errorf("%s of %q gives %s, want %s", c.path, c.schema, got, c.want)
		}
	}
}

// TestMicrodataOfRows: a row that is an item itself has its own properties,
// another one those of the items in it.
func TestMicrodataOfRows(t *testing.T) {
	in := Input{Body: []byte(itemPage), Target: "1"}
	for css, want := range map[string]string{"[itemprop=mainEntity]": "Kettle", "[itemprop=offers]:last-child": "Second", "body > div:last-of-type": "Other"} {
		rules := mustCompile(t, Spec{Rows: &Rule{CSS: css}, Key: "{name}", Fields: []Field{{Name: "name", Rule: Rule{Microdata: "name"}}}})
		if out, err := rules.Parse(in); err != nil || len(out.Records) != 1 || out.Records[0].Key != want {
			t.Errorf("the row %s has the name %s, %v, want %s", css, out.text(), err, want)
		}
	}
}

// TestLinkedDataTypes: with a schema a path starts from nodes of that @type only.
func TestLinkedDataTypes(t *testing.T) {
	const body = `<script type="application/ld+json">[{"@type":"WebSite","name":"Site"},{"@graph":[
 {"@type":["Thing","schema:Product"],"name":"Kettle","offers":[{"@type":"Offer","price":1}]},
 {"@type":"https://schema.org/Organization","name":"Acme"},{"name":"none"},{"@type":7,"name":"seven"}]}]</script>
<script type="application/ld+json">{"@type":"Product","name":"Second","gtin":"5"}</script>`
	for _, c := range []struct{ path, schema, want string }{
		{"name", "", `"Site"`},
		{"name", "Product", `"Kettle"`},
		{"name", "http://schema.org/Product", `"Kettle"`},
		{"name", "Thing", `"Kettle"`},
		{"name", "Organization", `"Acme"`},
		{"name", "organization", "null?"},
		{"gtin", "Product", `"5"`},
		{"price", "Offer", "null?"},
		{"offers.price", "Product", `"1"`},
	} {
		got := parseField(t, Input{Body: []byte(body), Target: "1"}, Field{Rule: Rule{JSONLD: c.path, Schema: c.schema}})
		if got != c.want {
			t.Errorf("%s of %q gives %s, want %s", c.path, c.schema, got, c.want)
		}
	}
	rules := mustCompile(t, Spec{Rows: &Rule{JSONLD: "offers", Schema: "Product"}, Key: "{p}", Fields: []Field{{Name: "p", Rule: Rule{JSONLD: "price"}}}})
	if out, err := rules.Parse(Input{Body: []byte(body)}); err != nil || out.text() != "1\tnull\n{\"p\":\"1\"}\n" {
		t.Errorf("rows of a type are %s, %v", out.text(), err)
	}
}

func TestSchemaType(t *testing.T) {
	for name, want := range map[string]string{
		"Product": "Product", " https://schema.org/Product": "Product", "http://www.schema.org/Product": "Product",
		"schema:Product": "Product", "http://data-vocabulary.org/Product": "http://data-vocabulary.org/Product", "": "",
	} {
		if got := schemaType(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
