package storage

import "slices"

// Category says why an attempt did not commit an observation. It drives
// policy; free text never does.
type Category string

const (
	CategoryConfig            Category = "config"             // the request could not be formed: bad URL, forbidden scheme or address
	CategoryProxyAuth         Category = "proxy_auth"         // the gateway refused the login
	CategoryProxyQuota        Category = "proxy_quota"        // the account's traffic is used up, or it is suspended
	CategoryProxyLimited      Category = "proxy_limited"      // the gateway's own rate or thread limit
	CategoryProxyDenied       Category = "proxy_denied"       // the gateway does not go to this target
	CategoryProxyUnreachable  Category = "proxy_unreachable"  // no conversation with the gateway itself
	CategoryExitUnavailable   Category = "exit_unavailable"   // no exit in the wanted country
	CategorySessionLost       Category = "session_lost"       // the exit of a session that had worked is gone
	CategoryExitConnect       Category = "exit_connect"       // a fresh exit did not reach the target
	CategoryDNS               Category = "dns"                // the target's name did not resolve
	CategoryConnectTimeout    Category = "connect_timeout"    // no connection to the target: refused, or none in time
	CategoryTLS               Category = "tls"                // certificate or handshake
	CategoryReadTimeout       Category = "read_timeout"       // connected, then silence
	CategoryBodyTruncated     Category = "body_truncated"     // the answer ended early
	CategoryThrottled         Category = "throttled"          // 429, or 503 with Retry-After
	CategoryBlocked           Category = "blocked"            // a block or challenge page, whatever its status
	CategoryNotFound          Category = "not_found"          // 404 or 410
	CategoryClientError       Category = "client_error"       // another 4xx
	CategoryServerError       Category = "server_error"       // another 5xx
	CategoryRedirectLoop      Category = "redirect_loop"      // too many hops, a cycle, or a hop that is not allowed
	CategoryTooLarge          Category = "too_large"          // over max_body
	CategoryRobotsDenied      Category = "robots_denied"      // robots.txt forbids the URL
	CategoryRobotsUnavailable Category = "robots_unavailable" // robots.txt could not be read: wait, do not guess
	CategoryContentType       Category = "content_type"       // not a kind of page that the rules read
	CategoryParseError        Category = "parse_error"        // the page is not what its type says
	CategoryValidation        Category = "validation"         // a field is missing or wrong
	CategoryDuplicateKey      Category = "duplicate_key"      // two different rows of one key on one page
	CategoryUnsafeToRepeat    Category = "unsafe_to_repeat"   // a step that must not be sent twice may have been sent
	CategoryBudgetExhausted   Category = "budget_exhausted"   // the job's attempts, time, bytes or rescues are used up
	CategoryCanceled          Category = "canceled"           // a person stopped the job
	CategoryReleased          Category = "released"           // handed back unburnt: a clean stop
	CategoryLeaseExpired      Category = "lease_expired"      // rescued: its worker died or fell silent
	CategoryInternal          Category = "internal"           // a fault of this program; a panic, an error nobody foresaw
)

// Categories are all categories, in the order above.
var Categories = []Category{
	CategoryConfig, CategoryProxyAuth, CategoryProxyQuota, CategoryProxyLimited, CategoryProxyDenied,
	CategoryProxyUnreachable, CategoryExitUnavailable, CategorySessionLost, CategoryExitConnect, CategoryDNS,
	CategoryConnectTimeout, CategoryTLS, CategoryReadTimeout, CategoryBodyTruncated, CategoryThrottled,
	CategoryBlocked, CategoryNotFound, CategoryClientError, CategoryServerError, CategoryRedirectLoop,
	CategoryTooLarge, CategoryRobotsDenied, CategoryRobotsUnavailable, CategoryContentType, CategoryParseError,
	CategoryValidation, CategoryDuplicateKey, CategoryUnsafeToRepeat, CategoryBudgetExhausted, CategoryCanceled, CategoryReleased,
	CategoryLeaseExpired, CategoryInternal,
}

// Known reports whether c is one of Categories.
func (c Category) Known() bool { return slices.Contains(Categories, c) }
