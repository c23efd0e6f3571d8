package leaks

import (
	"regexp"
	"strings"
)

// named is a secret without a form of its own: the name of its member identifies it.
type named struct {
	kind string
	form *regexp.Regexp
}

// byName has the named secrets by member, in lower case.
var byName = map[string]*named{
	"secretaccesskey":       awsSecret,
	"secret_access_key":     awsSecret,
	"aws_secret_access_key": awsSecret,
}

var awsSecret = &named{"AWS secret key", regexp.MustCompile(`^[A-Za-z0-9/+]{40}$`)}

// forms are the patterns: tokens with a provider's unique prefix, private keys, and passwords in URLs.
func forms() []pattern {
	// starting makes a pattern of tokens that begin with one of the prefixes in words and go on with rest.
	starting := func(kind, words, rest string, least int) pattern {
		needles := strings.Fields(words)
		quoted := make([]string, len(needles))
		for i, word := range needles {
			quoted[i] = regexp.QuoteMeta(word)
		}
		return pattern{kind: kind, needles: needles, form: regexp.MustCompile(`(?:` + strings.Join(quoted, "|") + `)` + rest), likely: follows(least)}
	}
	// after makes a pattern of secrets that follow one of the words.
	after := func(kind, words, form string, likely func([]byte) bool) pattern {
		return pattern{kind: kind, needles: strings.Fields(words), form: regexp.MustCompile(form), within: true, likely: likely}
	}
	return []pattern{
		starting("AWS access key", "AKIA ASIA ABIA ACCA", `[A-Z2-7]{16}`, 16),
		after("AWS secret key", awsNames, `(?i)secret_?access_?key["'\\]*\s*[:=]\s*["'\\]*([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)`, moreThan(40)),
		starting("Google API key", "AIza", `[0-9A-Za-z_-]{35}`, 35),
		starting("Google OAuth secret", "GOCSPX-", `[0-9A-Za-z_-]{28}`, 28),
		starting("Google access token", "ya29.", `[0-9A-Za-z_-]{20,}`, 20),
		after("Azure storage key", "AccountKey= SharedAccessKey=", `(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{42,86}={1,2})`, follows(43)),
		after("Azure client secret", "0Q~ 1Q~ 2Q~ 3Q~ 4Q~ 5Q~ 6Q~ 7Q~ 8Q~ 9Q~", `[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}`, moreThan(20)),
		after("Azure SAS signature", "sig=", `[?&]sig=([A-Za-z0-9%+/]{40,}(?:%3[dD]|=))`, follows(40)),
		starting("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", `[A-Za-z0-9]{36,255}`, 36),
		starting("GitHub token", "github_pat_", `[A-Za-z0-9_]{22,255}`, 22),
		starting("GitLab token", "glpat- glptt- gldt- glrt- glcbt- glagent- gloas- glsoat- glft- glimt-", `[0-9A-Za-z_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?`, 20),
		starting("Slack token", "xoxb- xoxp- xoxa- xoxe- xoxr- xoxs- xoxo- xapp- xoxe.xoxp- xoxe.xoxb-", `[0-9A-Za-z-]{10,}`, 10),
		after("Slack webhook", "hooks.slack.com/ hooks.slack.com\\/", `hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/+-]{20,})`, moreThan(20)),
		starting("Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", `[0-9A-Za-z]{10,}`, 10),
		starting("Stripe webhook secret", "whsec_", `[0-9A-Za-z+/]{32,}={0,2}`, 32),
		starting("Anthropic key", "sk-ant-", `[0-9a-z]+-[0-9A-Za-z_-]{20,}`, 20),
		starting("OpenAI key", "sk-proj- sk-svcacct- sk-admin-", `[0-9A-Za-z_-]{20,}`, 20),
		starting("OpenRouter key", "sk-or-v1-", `[0-9a-f]{64}`, 64),
		starting("API key", "sk-", `[0-9A-Za-z]{32,128}`, 32), // OpenAI's old keys, and keys in the same form
		starting("Groq key", "gsk_", `[0-9A-Za-z]{48,56}`, 48),
		starting("xAI key", "xai-", `[0-9A-Za-z]{70,90}`, 70),
		starting("Perplexity key", "pplx-", `[0-9A-Za-z]{40,60}`, 40),
		starting("Replicate token", "r8_", `[0-9A-Za-z]{37}`, 37),
		starting("Hugging Face token", "hf_", `[A-Za-z]{34}`, 34),
		starting("npm token", "npm_", `[0-9A-Za-z]{36}`, 36),
		starting("PyPI token", "pypi-", `AgE[0-9A-Za-z_-]{50,}`, 50),
		starting("Docker token", "dckr_pat_ dckr_oat_", `[0-9A-Za-z_-]{27,}`, 27),
		starting("Twilio key", "SK0 SK1 SK2 SK3 SK4 SK5 SK6 SK7 SK8 SK9 SKa SKb SKc SKd SKe SKf", `[0-9a-f]{31}`, 31),
		starting("SendGrid key", "SG.", `[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{16,64}`, 33),
		starting("Shopify token", "shpat_ shpca_ shppa_ shpss_", `[0-9a-fA-F]{32}`, 32),
		starting("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", `[0-9a-f]{64}`, 64),
		starting("Databricks token", "dapi", `[0-9a-f]{32}(?:-[0-9])?`, 32),
		starting("HashiCorp Vault token", "hvs. hvb. hvr.", `[0-9A-Za-z_-]{24,}`, 24),
		starting("Linear key", "lin_api_ lin_oauth_", `[0-9A-Za-z]{32,64}`, 32),
		starting("Notion token", "ntn_", `[0-9A-Za-z]{40,}`, 40),
		starting("Figma token", "figd_", `[0-9A-Za-z_-]{40,}`, 40),
		starting("Postman key", "PMAK-", `[0-9a-f]{24}-[0-9a-f]{34}`, 59),
		starting("Grafana token", "glsa_", `[0-9A-Za-z]{32}_[0-9a-fA-F]{8}`, 41),
		starting("Sentry token", "sntrys_ sntryu_", `[0-9A-Za-z_=+/-]{40,}`, 40),
		starting("Supabase key", "sbp_ sb_secret_", `[0-9A-Za-z_-]{20,}`, 20),
		starting("toolfinch API key", "tfkey_", `[0-9a-z]{52}`, 52),
		starting("age key", "AGE-SECRET-KEY-1", `[0-9A-Z]{58}`, 58),
		after("Telegram bot token", ":AA", `[0-9]{8,10}:AA[0-9A-Za-z_-]{33}`, follows(33)),
		{
			kind: "JSON web token", needles: []string{"eyJ"}, likely: follows(20),
			form: regexp.MustCompile(`eyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]*`),
		},
		{
			kind: "private key", needles: []string{"-----BEGIN "}, likely: soon("PRIVATE KEY", 40), within: true,
			// In JSON inside a text, a line break is two characters. A key without an end was cut.
			form: regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:(?s:.*?)-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|(?:[A-Za-z0-9+/=\s:,-]|\\+[nr])*)`),
		},
		{
			kind: "password in a URL", needles: []string{"://", `:\/\/`}, likely: userinfo, within: true, placeholder: isPlaceholder,
			form: regexp.MustCompile(`://[^\s:/?#@"'<>]*:([^\s/?#@"'<>]+)@`),
		},
	}
}

// awsNames are the names that come before an AWS secret key.
const awsNames = "aws_secret_access_key AWS_SECRET_ACCESS_KEY SecretAccessKey secretAccessKey secret_access_key SECRET_ACCESS_KEY"

// isPlaceholder reports whether a password is an example in documentation.
func isPlaceholder(password string) bool {
	if strings.ContainsAny(password[:1], "$<{[%*") || strings.Trim(password, "*x.X-") == "" {
		return true
	}
	switch strings.ToLower(password) {
	case "password", "pass", "passwd", "pwd", "secret", "changeme", "your_password", "your-password", "mypassword":
		return true
	}
	return false
}
