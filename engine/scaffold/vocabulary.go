package scaffold

import "semel/parser"

// concept is something that many pages say, and the places where they say it:
// the names that standards and habit have for it, the likely ones first.
type concept struct {
	name   string // of the field
	kind   kind
	schema []string       // paths of properties of schema.org, in JSON-LD and microdata
	meta   []string       // names of <meta>
	keys   []string       // in a page's own JSON
	places []parser.Field // in the elements of most pages
	words  []string       // in ids, data attributes and classes of elements
}

const (
	titleField    = "title"
	priceField    = "price"
	currencyField = "currency" // no field of its own: what amounts are in
)

// vocabulary has the concepts in the order of their use to people.
var vocabulary = []concept{
	{
		name: titleField, schema: []string{"headline", "name"},
		meta: []string{"og:title", "twitter:title", "citation_title", "dc.title"},
		keys: []string{"title", "headline", "name"},
		places: []parser.Field{
			{Rule: parser.Rule{CSS: "[itemprop=headline]"}}, {Rule: parser.Rule{CSS: "[itemprop=name]"}},
			{Rule: parser.Rule{CSS: "h1"}}, {Rule: parser.Rule{CSS: "title"}},
		},
	},
	{
		name: currencyField, schema: []string{"offers.priceCurrency", "offers.priceSpecification.priceCurrency", "priceCurrency"},
		meta: []string{"product:price:currency", "og:price:currency"},
		keys: []string{"currency", "priceCurrency", "currencyCode", "price.currency"},
	},
	{
		name: priceField, kind: amount, schema: []string{"offers.price", "offers.lowPrice", "offers.priceSpecification.price"},
		meta:  []string{"product:price:amount", "og:price:amount"},
		keys:  []string{"price", "salePrice", "price.amount", "price.value"},
		words: []string{"price", "preis", "prix", "precio", "prezzo"},
	},
	{
		name: "availability", schema: []string{"offers.availability"},
		meta: []string{"product:availability", "og:availability"},
		keys: []string{"availability", "inStock"}, words: []string{"availability", "stock"},
	},
	{
		name: "sku", schema: []string{"sku", "productID", "mpn", "gtin13", "isbn"},
		meta: []string{"product:retailer_item_id"},
		keys: []string{"sku", "productId", "id"}, words: []string{"sku"},
	},
	{
		name: "brand", schema: []string{"brand.name", "brand", "manufacturer.name"},
		meta: []string{"product:brand", "og:brand"}, keys: []string{"brand", "brand.name"},
	},
	{
		name: "starts", kind: when, schema: []string{"startDate"},
		meta: []string{"event:start_time"}, keys: []string{"startDate"},
	},
	{name: "ends", kind: when, schema: []string{"endDate"}, meta: []string{"event:end_time"}, keys: []string{"endDate"}},
	{name: "company", schema: []string{"hiringOrganization.name"}},
	{name: "place", schema: []string{"location.name", "jobLocation.address.addressLocality", "address.addressLocality"}},
	{
		name: "published", kind: when, schema: []string{"datePublished", "datePosted", "uploadDate", "dateCreated"},
		meta: []string{
			"article:published_time", "og:article:published_time", "citation_publication_date", "dcterms.created", "dc.date", "date", "pubdate",
		},
		keys:   []string{"datePublished", "publishedAt", "published", "publishDate", "createdAt", "date"},
		places: []parser.Field{{Rule: parser.Rule{CSS: "[itemprop=datePublished]"}, Attr: "datetime"}, {Rule: parser.Rule{CSS: "time"}, Attr: "datetime"}},
		words:  []string{"published", "pubdate", "date", "datum", "fecha"},
	},
	{
		name: "modified", kind: when, schema: []string{"dateModified"},
		meta: []string{"article:modified_time", "og:updated_time"},
		keys: []string{"dateModified", "updatedAt", "modified"},
	},
	{
		name: "author", schema: []string{"author.name", "author", "creator.name"},
		meta:   []string{"author", "article:author", "dc.creator", "citation_author"},
		keys:   []string{"author", "author.name"},
		places: []parser.Field{{Rule: parser.Rule{CSS: "[itemprop=author]"}}, {Rule: parser.Rule{CSS: "a[rel=author]"}}},
		words:  []string{"author", "byline", "autor", "auteur"},
	},
	{
		name: "rating", kind: number, schema: []string{"aggregateRating.ratingValue", "reviewRating.ratingValue"},
		keys: []string{"rating", "averageRating"},
	},
	{name: "ratings", kind: counted, schema: []string{"aggregateRating.reviewCount", "aggregateRating.ratingCount"}},
	{
		name: "section", schema: []string{"articleSection", "category", "recipeCategory", "genre"},
		meta: []string{"article:section"}, keys: []string{"category", "section"},
	},
	{
		name: "image", kind: link, schema: []string{"image.url", "image.contentUrl", "image", "thumbnailUrl"},
		meta: []string{"og:image", "twitter:image"}, keys: []string{"image", "imageUrl", "image.url"},
	},
	{
		name: "description", schema: []string{"description"},
		meta: []string{"og:description", "description", "twitter:description"}, keys: []string{"description", "summary"},
	},
	{name: "text", schema: []string{"text", "reviewBody"}},
}

// framework has the concepts that say more of the site than of the page: they
// come last.
var framework = []concept{
	{
		name: "url", kind: link, meta: []string{"og:url"},
		places: []parser.Field{{Rule: parser.Rule{CSS: "link[rel=canonical]"}, Attr: "href"}},
	},
	{name: "site", meta: []string{"og:site_name", "application-name"}},
	{name: "keywords", meta: []string{"keywords", "news_keywords"}},
}

// itemTypes are the types of schema.org that a page can be about, the one
// before the other where a page has both: what is sold or happens before the
// article about it, and that before the film in it.
var itemTypes = []string{
	"Product", "ProductGroup", "Recipe", "JobPosting", "Event", "MusicEvent", "SportsEvent", "TheaterEvent", "Book", "Movie", "TVSeries", "Course",
	"SoftwareApplication", "MobileApplication", "WebApplication", "VideoGame", "Vehicle", "Car", "RealEstateListing", "Apartment", "House",
	"Hotel", "LodgingBusiness", "Restaurant", "TouristAttraction", "LocalBusiness", "Dataset",
	"NewsArticle", "ReportageNewsArticle", "LiveBlogPosting", "BlogPosting", "TechArticle", "ScholarlyArticle", "Article", "Report", "HowTo",
	"QAPage", "DiscussionForumPosting", "SocialMediaPosting", "Review", "PodcastEpisode", "MusicRecording", "MusicAlbum", "VideoObject",
	"CreativeWork",
}

// pageTypes are types that say something of the page, but not that it is about
// one thing.
var pageTypes = []string{"ItemPage", "AboutPage", "ContactPage", "CollectionPage", "WebPage"}
