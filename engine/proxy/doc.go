// Package proxy turns a configured proxy into endpoints, which gateway and
// which login for which exit, and reads what gateways say of themselves.
//
// It answers for the template language, for the providers' syntax and error
// signs (one table, see presets), and for secrecy: every type that holds a
// login prints as the proxy's name and address, under every verb of fmt, in
// JSON, in text and in slog. Only [Endpoint.URL] gives the login away.
//
// It leaves to others: when to take a new session and how long to keep one
// (fetch.Pool), and what is to be done after an error (engine).
//
// A country that is asked for is never dropped: a proxy whose templates cannot
// express it refuses to make the endpoint.
//
// # Templates
//
// A template is text with the variables {username}, {password}, {country},
// {session} and {ttl}, which is how long a session's exit is to be kept, rounded
// up: in minutes, or as the provider counts. A segment in square brackets is
// left out when one of its variables is empty:
// "{password}[_country-{country}][_session-{session}]". It may hold
// alternatives, of which the first with all its values is taken and the last
// needs no variable: "{username}[-{country}|-any]". Brackets do not nest, and a
// bracket without a variable is an error. A variable outside brackets must have
// a value, except {username} and {password}, which may be empty; {ttl} stands in
// brackets only, since an exit for one attempt has none.
package proxy
