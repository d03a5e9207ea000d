package demo

import "fmt"

// source is the demo's only source.
const source = "shop"

// The variables that give the gateway's login to the config.
const (
	userVariable     = "SEMEL_DEMO_USER"
	passwordVariable = "SEMEL_DEMO_PASSWORD"
)

// provider is whose logins the demo's gateway reads.
const provider = "packetstream"

// marker is the first line of the demo's config. A folder that has it is the
// demo's own.
const marker = "# semel demo: this line marks the folder as the demo's own, to be written again"

// ParserTOML are the rules for the site's pages, as sections of a config whose
// source is named shop and whose targets have the variable id.
const ParserTOML = `[source.shop.parser]
version = 1                                         # raise it when the rules change

[source.shop.parser.fields]
id           = { var = "id" }                       # from targets.csv
title        = { css = "h1", required = true }      # a page without it is a failure, never an empty record
price        = { css = ".price", type = "money", currency = "USD", decimal = "." }
availability = { jsonld = "offers.availability", map = { "https://schema.org/InStock" = "in_stock", "https://schema.org/OutOfStock" = "out_of_stock", "https://schema.org/PreOrder" = "preorder" } }
rating       = { jsonld = "aggregateRating.ratingValue", type = "decimal" }      # some pages have none: null, and named in _meta.missing
updated      = { css = ".updated time", attr = "datetime", type = "timestamp" }
images       = { css = "img.gallery", attr = "src", type = "url", many = true }
`

// configText is a config for the gateway at an address.
func configText(gateway string) string {
	return fmt.Sprintf(configTemplate, marker, "http://"+gateway, userVariable, passwordVariable, siteHost, productPath, ParserTOML, provider)
}

const configTemplate = `%[1]s
#
# What "semel demo" ran: a shop that does not exist, behind a gateway that fails
# on purpose. Both lived in the demo's own process and are gone, and so is the
# login: "semel run" with this file would ask for it. "semel demo" writes the
# file anew, finds what is complete and finishes what is not.
#
# status, jobs, show, key and export work on what it left.

version = 1

[store]
path   = "semel.db"              # jobs, attempts and records: one file
bodies = "none"                  # "failed", the default, keeps the pages of failed attempts beside it

[engine]
workers = 32                     # attempts at once

# How often one host is asked. The demo's own shop does not mind; for a real one
# leave the defaults: 4 at once, and 250 ms between two starts.
[host."%[5]s"]
concurrency = 32
interval    = "0s"

# The way out: a gateway with a login, to which the provider's syntax adds country
# and session. The address is the demo's own; without url it is the provider's.
# Secrets never stand in this file.
[proxy.gateway]
provider = "%[8]s"
url      = "%[2]s"
username = "env:%[3]s"
password = "env:%[4]s"

# What to collect: one job for each row of targets.csv. The key is what makes it
# that job: offering it again makes no second one.
[source.shop]
url     = "http://%[5]s%[6]s{id}"
targets = "targets.csv"
key     = "{id}"
country = "US"                   # of the exits
proxy   = "gateway"

[source.shop.limits]
attempts = 100                   # per job; the default is 6, the demo may be told to fail nine times of ten

# How long to wait before the next attempt, by what went wrong. The defaults are
# seconds to minutes; the demo is in a hurry.
[source.shop.retry.exit_connect]     # the gateway's exit did not reach the shop
base = "50ms"
max  = "400ms"

[source.shop.retry.body_truncated]   # the connection broke in the middle of the page
base = "50ms"
max  = "400ms"

[source.shop.retry.throttled]        # 503 with Retry-After, which is obeyed all the same
base = "50ms"
max  = "400ms"

# What a page means.
%[7]s`
