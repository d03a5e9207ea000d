package engine

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"semel/engine/gateway"
	"semel/storage"
)

// of makes the story one of a provider, country and all.
func of(provider string, more ...func(*wire)) func(*wire) {
	return func(w *wire) {
		w.gateway.Provider, w.proxy.Provider, w.proxy.UsernameTemplate = provider, provider, ""
		w.proxy.Username = cmp.Or(accounts[provider], w.proxy.Username)
		w.gateway.Username = w.proxy.Username
		w.src.Country, w.src.Identity.Country = mustTemplate("US"), false
		w.keep = 10 * time.Minute // which all of them allow
		for _, set := range more {
			set(w)
		}
	}
}

// elsewhere leaves the provider no exit in the country that is wanted.
func elsewhere(w *wire) { w.gateway.Countries = []string{"DE"} }

// providerStories are about answers that only one provider gives, or means so.
func providerStories() []wired {
	explains := func(status int, body string) gateway.Fault {
		return gateway.Fault{Kind: gateway.Status, Status: status, Body: body, Header: http.Header{"Proxy-Authenticate": {"Basic"}}}
	}
	brd := func(code string) http.Header { return oneHeader("X-Brd-Err-Code", code) }
	refused := of("brightdata", func(w *wire) {
		w.gateway.Fault = func(gateway.Request) gateway.Fault { return gatewaySays(200, brd("client_10000")) }
	})
	connect := []way{viaTunnel}
	return slices.Concat(
		ends(storage.CategoryProxyAuth, jobHandedBack(freshTries), anyExit,
			wired{name: "brightdata: 200 with client_10000", ways: proxyWays, set: refused, gateway: 200, code: "client_10000"},
		),
		ends(storage.CategoryProxyQuota, jobHandedBack(1), anyExit,
			wired{name: "brightdata: client_10100", ways: proxyWays, set: of("brightdata"), fault: gatewaySays(502, brd("client_10100")), gateway: 502, code: "client_10100"},
			wired{name: "dataimpulse: 407 TRAFFIC_EXHAUSTED", ways: connect, set: of("dataimpulse"), fault: explains(407, "TRAFFIC_EXHAUSTED"), gateway: 407},
			wired{name: "oxylabs: 407 of traffic", ways: connect, set: of("oxylabs"), fault: explains(407, "Traffic limit reached"), gateway: 407},
		),
		ends(storage.CategoryProxyLimited, jobRetried(5*time.Second), anyExit,
			wired{name: "brightdata: policy_20220", ways: proxyWays, set: of("brightdata"), fault: gatewaySays(429, brd("policy_20220")), gateway: 429, code: "policy_20220"},
			wired{name: "dataimpulse: 407 THREADS_EXHAUSTED", ways: connect, set: of("dataimpulse"), fault: explains(407, "THREADS_EXHAUSTED"), gateway: 407},
		),
		ends(storage.CategoryProxyDenied, jobFailed, anyExit,
			wired{name: "brightdata: 402 with policy_20130", ways: proxyWays, set: of("brightdata"), fault: gatewaySays(402, brd("policy_20130")), gateway: 402, code: "policy_20130"},
			wired{name: "dataimpulse: HOST_BLOCKED", ways: connect, set: of("dataimpulse"), fault: explains(403, "HOST_BLOCKED"), gateway: 403},
		),
		ends(storage.CategoryExitUnavailable, jobRetried(10*time.Second).free(), freshExit,
			wired{name: "brightdata: none in the country", ways: proxyWays, set: of("brightdata", elsewhere), last: true, gateway: 502, code: "peer_30030"},
			wired{name: "dataimpulse: none in the country", ways: connect, set: of("dataimpulse", elsewhere), last: true, gateway: 503},
			wired{name: "iproyal: none in the country", ways: connect, set: of("iproyal", elsewhere), last: true, gateway: 503},
			wired{name: "netnut: none in the country", ways: proxyWays, set: of("netnut", elsewhere), last: true, gateway: 490},
		),
		ends(storage.CategorySessionLost, jobRetried(time.Second), freshExit,
			wired{name: "oxylabs: session ended", ways: proxyWays, set: of("oxylabs"), fault: gatewaySays(502, oneHeader("X-Error-Description", "Exit node not found (session ended)")), gateway: 502, code: "Exit node not found (session ended)"},
			wired{name: "packetstream: its exit is gone", ways: connect, warm: true, set: of("packetstream", deadExit), last: true, gateway: 502},
		),
		ends(storage.CategoryDNS, jobRetried(time.Minute), freshExit,
			wired{name: "brightdata: target_40001", ways: proxyWays, set: of("brightdata"), fault: gatewaySays(502, brd("target_40001")), gateway: 502, code: "target_40001"},
		),
		ends(storage.CategoryExitConnect, jobRetried(2*time.Second), freshExit,
			wired{name: "brightdata: target_40021", ways: proxyWays, set: of("brightdata"), fault: gatewaySays(502, brd("target_40021")), gateway: 502, code: "target_40021"},
			wired{name: "dataimpulse: NO_HOST_CONNECTION", ways: connect, set: of("dataimpulse"), fault: explains(502, "NO_HOST_CONNECTION"), gateway: 502},
		),
	)
}
