package scaffold

// Starter is a config to begin with where there is no page to look at. It loads
// as it stands.
const Starter = `# A config to begin with: put a site and selectors of your own, then semel check,
# semel try items, semel run --once, semel export items.
# semel init URL proposes fields from a page's own data.
version = 1

[source.items]
url     = "https://www.example.com/item/{id}"
targets = [{ id = "1" }, { id = "2" }]     # or a file, such as "items.csv"
key     = "{id}"                           # what tells one item from another, in every run
` + hints + `[source.items.parser]
version = 1     # raise it when the rules change

[source.items.parser.fields]
title = { css = "h1", required = true }     # missing fails the page: a block page is no item
price = { css = ".price", type = "money", currency = "USD", decimal = "." }
` + sections
