package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// Scenarios for OAuth are played through toolfinch alone. The player is the user:
// it runs toolfinch server login, and goes where a browser would go.

// oauth is how toolfinch is configured to log in to the suite's server: by what the
// scenario gives to the client.
func oauth() any {
	var given struct {
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given) // most have none
	settings := map[string]any{"client_metadata_url": "https://conformance-test.local/client-metadata.json"}
	put := func(key, value string) {
		if value != "" {
			settings[key] = value
		}
	}
	put("client_id", given.ClientID)
	put("client_secret", given.ClientSecret)
	if os.Getenv("MCP_CONFORMANCE_SCENARIO") == "auth/client-credentials-basic" {
		settings["grant"] = "client_credentials"
	}
	return settings
}

// logIn runs toolfinch server login, and follows the URL that it prints.
func logIn(ctx context.Context, through, config string) error {
	cmd := exec.CommandContext(ctx, through, "login", "suite", "--no-browser", "--config", config)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(os.Stderr, "login:", lines.Text())
		if at := strings.TrimSpace(lines.Text()); strings.HasPrefix(at, "http") {
			if err := follow(ctx, at); err != nil {
				fmt.Fprintln(os.Stderr, "browser:", err)
			}
		}
	}
	return cmd.Wait()
}

// browser keeps cookies: a login ends in the browser in which it began.
var browser = func() *http.Client {
	jar, _ := cookiejar.New(nil) // it never fails
	return &http.Client{Jar: jar}
}()

// follow goes where a browser is sent from a URL on.
func follow(ctx context.Context, at string) error {
	if u, err := url.Parse(at); err != nil || u.Host == "" {
		return errors.New("that is no URL")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	response, err := browser.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, page)
	}
	return err
}

var inText = regexp.MustCompile(`or open (\S+)`)

// more follows the URL that the error of a call names: that needs a login with more
// scopes than there is. It reports whether the call is to be made again.
func more(ctx context.Context, said string) bool {
	found := inText.FindStringSubmatch(said)
	if found == nil {
		return false
	}
	if err := follow(ctx, found[1]); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		return false
	}
	return true
}

// because is why toolfinch says that it needs a login.
var because = regexp.MustCompile(`needs login[^"]*`)

// logins logs in once for each reason that toolfinch has for a login: it takes a moment to
// notice that it was done.
type logins map[string]bool

func (l logins) logIn(ctx context.Context, said, through, config string) error {
	why := because.FindString(said)
	if l[why] {
		return nil
	}
	l[why] = true
	return logIn(ctx, through, config)
}
