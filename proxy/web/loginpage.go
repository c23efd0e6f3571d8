package web

import (
	"html/template"
	"net/http"
)

// LoginPage asks the user who opened a login to a server to prove who they are.
type LoginPage struct {
	Server  string
	Problem string // why the last attempt failed; "" for none
	Keys    bool   // an API key is proof
	Issuer  string // a login at this issuer is proof; "" for none
}

var loginPage = template.Must(template.New("login").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Log in to {{.Server}}</title></head>
<body><main>
<h1>Log in to {{.Server}}</h1>
<p>An agent asked to log in to {{.Server}}. <strong>Go on only if it was your agent.</strong> If somebody sent you here, close this window: your account would become theirs.</p>
{{with .Problem}}<p role="alert">{{.}}</p>{{end}}
{{if .Keys}}<form method="post">
<label for="key">To prove that the agent is yours, type in the API key that it uses:</label>
<p><input id="key" name="key" type="password" autocomplete="off" required spellcheck="false" placeholder="tfkey_…"> <button>Go on</button></p>
</form>{{end}}
{{with .Issuer}}<form method="post"><p>To prove that the agent is yours, log in as its user at {{.}}: <button name="identify" value="yes">Go on</button></p></form>{{end}}
{{if not (or .Problem .Keys .Issuer)}}<p role="alert">This page cannot tell who you are, so the login is refused.</p>{{end}}
</main></body></html>
`))

// Serve answers a request with the page.
func (p LoginPage) Serve(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'") // form-action would stop the redirect to the authorization server
	w.Header().Set("Referrer-Policy", "same-origin")                                                         // with no-referrer, browsers send forms with the Origin null
	w.WriteHeader(status)
	_ = loginPage.Execute(w, p)
}
