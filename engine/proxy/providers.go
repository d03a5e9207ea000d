package proxy

import (
	"regexp"
	"time"

	"semel/storage"
)

// presets are the known providers, by name. Nothing here was tried against a
// real gateway: "verified" is for whoever does it. A form for which no evidence
// was found is not offered.
var presets = []preset{
	{
		name:            "brightdata",
		url:             "http://brd.superproxy.io:44445",
		username:        "{username}[-country-{country}][-session-{session}]",
		strictUsername:  "{username}[-country-{country}][-session-{session}-const]",
		password:        "{password}",
		country:         countryLower,
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		marks:           brightdataMarks,
		rules:           brightdataRules,
		exitHeader:      "X-Brd-Ip",
		deadExit:        "replaced without a word; strict: fails (502)",
		doc: "not verified; username is the whole brd-customer-ID-zone-ZONE, password the zone's; no time to live in the login, an idle exit is let go (after 7 min by some); SOCKS5: port 22228; " +
			"docs.brightdata.com: errorCatalog, keep_same_peer_in_session, rotate_ips; that the older ports are gone: third parties",
	},
	{
		name:            "dataimpulse",
		url:             "http://gw.dataimpulse.com:823",
		username:        "{username}[__cr.{country};sessid.{session}|__cr.{country}|__sessid.{session}][;sessttl.{ttl}]",
		password:        "{password}",
		country:         countryLower,
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		maxKeep:         30 * time.Minute,
		rules:           dataimpulseRules,
		deadExit:        "replaced without a word",
		doc: "not verified; username is the plan's login; SOCKS5: port 824; docs.dataimpulse.com: errors, session-id, session-interval, " +
			"which grants a session 30 min and describes sessttl for the sticky ports only; a session without a country: third parties",
	},
	{
		name:            "decodo",
		url:             "http://gate.decodo.com:7000",
		username:        "user-{username}[-country-{country}][-session-{session}][-sessionduration-{ttl}]",
		strictUsername:  "user-{username}[-country-{country}][-session_iplock-{session}][-sessionduration-{ttl}]",
		password:        "{password}",
		country:         countryLower,
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		maxKeep:         24 * time.Hour,
		deadExit:        "replaced without a word; strict: fails",
		doc: "not verified; username is the proxy user's, without the prefix user-; SOCKS5: the same port; " +
			"gateway and time: help.decodo.com; the rest, session_iplock too: third parties that agree; after 60 s without a request an exit is let go",
	},
	{
		name:            "evomi",
		url:             "http://rp.evomi.com:1000",
		username:        "{username}",
		password:        "{password}[_country-{country}][_session-{session}][_lifetime-{ttl}]",
		strictPassword:  "{password}[_country-{country}][_hardsession-{session}]",
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		maxKeep:         2 * time.Hour,
		deadExit:        "may be replaced without a word; strict: kept as long as it lives",
		doc: "not verified; the residential gateway; SOCKS5: port 1002; docs.evomi.com: residential-proxies, its pages on country and sessions, integration-guides; " +
			"the limit of the time: its page on mobile proxies; at least 512 bytes are billed for each request",
	},
	{
		name:            "infatica",
		url:             "http://pool.infatica.io:10000",
		username:        "{username}[_c_{country}][_s_{session}][_ttl_{ttl}]",
		strictUsername:  "{username}[_c_{country}][_s_{session}_ttl_{ttl}_rotm_2|_s_{session}_rotm_2]",
		password:        "{password}",
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		ttlSuffix:       "m",
		maxKeep:         240 * time.Hour,
		deadExit:        "replaced after some seconds; strict: fails",
		doc: "not verified; SOCKS5: the same ports, 10000 to 10999; the syntax: docs.proxy-seller.com, api-tool, for the family to which Infatica belongs " +
			"(Proxy-Seller, GonzoProxy and Ping Proxies too, each with its own url); that it does, and the longest time seen: third parties",
	},
	{
		name:            "iproyal",
		url:             "http://geo.iproyal.com:12321",
		username:        "{username}",
		password:        "{password}[_country-{country}][_session-{session}][_lifetime-{ttl}]",
		country:         countryLower,
		sessionAlphabet: lowerAlnum,
		sessionLength:   8, // exactly
		ttlSuffix:       "m",
		maxKeep:         7 * 24 * time.Hour,
		rules:           []rule{{status: 503, category: storage.CategoryExitUnavailable}},
		deadExit:        "replaced without a word",
		doc:             "not verified; docs.iproyal.com: residential proxies, rotation, response codes; the gateway's address: third parties",
	},
	{
		name:            "netnut",
		url:             "http://gw.netnut.net:5959",
		username:        "{username}-res-[{country}|any][-sid-{session}]",
		password:        "{password}",
		country:         countryLower,
		exceptions:      map[string]string{"GB": "uk"},
		sessionAlphabet: digits,
		sessionLength:   sessionLength,
		deadExit:        "fails (502), or is replaced without a word",
		doc: "not verified; residential; SOCKS5: the same port; no time to live in the login, and none stated; " +
			"help.netnut.io: residential proxies, initial setup, error messages",
	},
	{
		name:            "oxylabs",
		url:             "http://pr.oxylabs.io:7777",
		username:        "customer-{username}[-cc-{country}][-sessid-{session}][-sesstime-{ttl}]",
		strictUsername:  "customer-{username}[-cc-{country}][-sessid_oneip-{session}][-sesstime-{ttl}]",
		password:        "{password}",
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		maxKeep:         24 * time.Hour,
		marks:           oxylabsMarks,
		rules:           oxylabsRules,
		deadExit:        "replaced without a word; strict: fails (502)",
		doc: "not verified; username is the proxy user's, without the prefix customer-; SOCKS5: the same port; after 60 s without a request an exit is let go; " +
			"developers.oxylabs.io: residential proxies, making requests, session control, additional information",
	},
	{
		name:            "packetstream",
		url:             "http://proxy.packetstream.io:31112",
		username:        "{username}",
		password:        "{password}[_country-{country}][_session-{session}]",
		country:         countryName,
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		maxKeep:         time.Hour,
		deadExit:        "fails",
		doc: "not verified; password is the auth key; no time to live in the login; TLS to the gateway: https, port 31111; SOCKS5: socks5h, port 31113; " +
			"ports: github.com/packetstream/packetstream-examples; suffixes on the password: public code of third parties that agrees",
	},
	{
		name:            "proxyrack",
		url:             "http://premium.residential.proxyrack.net:9000",
		username:        "{username}[;country={country}][;session={session}][;refreshMinutes={ttl}]",
		password:        "{password}",
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		maxKeep:         time.Hour,
		deadExit:        "not known",
		doc: "not verified; the premium plan: others have hosts of their own (unmetered, private); " +
			"public code of third parties that agrees, session ids there being UUIDs and 60 the most minutes seen",
	},
	{
		name:            "rayobyte",
		url:             "http://la.residential.rayobyte.com:8000",
		username:        "{username}",
		password:        "{password}[-country-{country}][-session-{session}]",
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		deadExit:        "not known",
		doc:             "not verified; SOCKS5: port 1080; no time to live known; public code of two third parties",
	},
	{
		name:            "soax",
		url:             "http://proxy.soax.com:5000",
		username:        "package-{username}[-country-{country}][-sessionid-{session}][-sessionlength-{ttl}]",
		password:        "{password}",
		country:         countryLower,
		sessionAlphabet: lowerAlnum,
		sessionLength:   sessionLength,
		ttlUnit:         time.Second,
		maxKeep:         time.Hour,
		deadExit:        "replaced without a word",
		doc: "not verified; username is the package's id, password its key; helpcenter.soax.com: articles 6723733, 7035059, 9939557, " +
			"which disagree on the longest time (3600 s for residential exits, 86400 s for ISPs')",
	},
	{
		name:            "webshare",
		url:             "http://p.webshare.io:80",
		username:        "{username}[-{country}][-{session}|-rotate]",
		password:        "{password}",
		country:         countryLower,
		sessionAlphabet: digits,
		sessionLength:   sessionLength,
		deadExit:        "not known",
		doc: "not verified; username is the proxy user's, without suffixes; no time to live in the login, and none stated; SOCKS5: port 1080; " +
			"apidocs.webshare.io: proxy connection",
	},
}

// Bright Data: docs.brightdata.com, errorCatalog. The same codes come in
// Proxy-Status, which replaces these headers in the course of 2026.
var (
	brightdataMarks = []string{"X-Brd-Err-Code", "X-Brd-Error", "X-Brd-Err-Msg"}

	brightdataRules = []rule{
		says(`^client_(1000\d|10010|10030|10040|10050)\b`, storage.CategoryProxyAuth),
		says(`^client_(10020|10100)\b`, storage.CategoryProxyQuota), // suspended; usage limit
		says(`^(client_10110|policy_2022\d)\b`, storage.CategoryProxyLimited),
		says(`^(client_1006\d|peer_30030)\b`, storage.CategoryExitUnavailable),
		says(`^(policy_20|client_102[56]0\b|kyc)`, storage.CategoryProxyDenied), // also with 402 and 502
		says(`^target_400[01]1\b`, storage.CategoryDNS),                         // no such name; no address of the wanted kind
		says(`^target_4002\d\b`, storage.CategoryExitConnect),
	}
)

// Oxylabs: developers.oxylabs.io, residential proxies, additional information.
var (
	oxylabsMarks = []string{"X-Error-Description"}

	oxylabsRules = []rule{
		{status: 407, says: regexp.MustCompile(`(?i)traffic`), category: storage.CategoryProxyQuota},
		says(`(?i)session (failed|ended)`, storage.CategorySessionLost),
	}
)

// DataImpulse: docs.dataimpulse.com, errors.
var dataimpulseRules = []rule{
	says(`\bTRAFFIC_EXHAUSTED\b`, storage.CategoryProxyQuota),
	says(`\bTHREADS_EXHAUSTED\b`, storage.CategoryProxyLimited),
	says(`\bPORT_NOT_ALLOWED\b`, storage.CategoryProxyDenied),
	says(`\bNO_HOST_CONNECTION\b`, storage.CategoryExitConnect),
	says(`\bNO_RAY\b`, storage.CategoryExitUnavailable),
}
