package page

import "testing"

func TestTheStepThatMendsAServer(t *testing.T) {
	for _, test := range []struct {
		name   string
		server Upstream
		key    bool // the bearer of an API key asks
		want   []step
	}{
		{name: "a program that is not there", server: Upstream{State: "failed", Error: `connect: the command "uvx" is not on the PATH`},
			want: []step{{Text: "Install uv from docs.astral.sh/uv, or write its whole path into t.yaml as the command of s. Then:", Button: "Restart", Do: "reconnect"}}},
		{name: "any program", server: Upstream{State: "failed", Error: `the command "frob" is not on the PATH`},
			want: []step{{Text: "Install frob, or write its whole path into t.yaml as the command of s. Then:", Button: "Restart", Do: "reconnect"}}},
		{name: "a variable of the configuration", server: Upstream{State: "failed", Error: "env TOKEN: variable GITHUB_TOKEN is not set (set it, or give a default)"},
			want: []step{{Text: "Set GITHUB_TOKEN where toolfinch starts and start it again, or write the value into t.yaml."}}},
		{name: "a variable that the server names", server: Upstream{State: "failed", Error: "the process ended (exit status 1)", Stderr: []string{"Starting on NODE_OPTIONS", "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables"}},
			want: []step{{Text: "Write SLACK_BOT_TOKEN, SLACK_TEAM_ID under env of s in t.yaml: toolfinch takes an edit at once. If they are there:", Button: "Restart", Do: "reconnect"}}},
		{name: "a token", server: Upstream{State: "failed", Error: "401 Unauthorized"},
			want: []step{{Text: "The server refuses the token: renew it under headers or env of s in t.yaml. Then:", Button: "Restart", Do: "reconnect"}}},
		{name: "time", server: Upstream{State: "failed", Error: "context deadline exceeded"},
			want: []step{{Text: "It may need longer, for a download at its first start: connect_timeout: 2m under s in t.yaml. Else:", Button: "Restart", Do: "reconnect"}}},
		{name: "anything else", server: Upstream{State: "failed", Error: "odd"}, want: []step{{Button: "Restart", Do: "reconnect"}}},
		{name: "seen with a key", server: Upstream{State: "failed", Error: `the command "uvx" is not on the PATH`}, key: true, want: []step{{Button: "Restart", Do: "reconnect"}}},
		{name: "a login", server: Upstream{State: "needs_login", MayLogIn: true}, want: []step{{Button: "Log in", Do: "login", Command: "toolfinch server login s"}}},
		{name: "a login of each user", server: Upstream{State: "needs_login", MayLogIn: true}, key: true, want: []step{{Button: "Log in", Do: "login"}}},
		{name: "a login of the owner", server: Upstream{State: "needs_login"}, key: true, want: []step{{Text: "The owner has to log in."}}},
		{name: "held", server: Upstream{State: "ready", Held: 2}, want: []step{{Link: "changes", Label: "Look at 2 changed definitions"}}},
		{name: "starting", server: Upstream{State: "pending"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.server.Name = "s"
			got := needsOf([]Upstream{test.server}, "t.yaml", !test.key)
			if len(got) != 1 || len(got[0].Steps) != len(test.want) {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
			for i, one := range got[0].Steps {
				if one != test.want[i] {
					t.Errorf("got %+v\nwant %+v", one, test.want[i])
				}
			}
		})
	}
}

func TestAServerNamesFewVariables(t *testing.T) {
	words := "please set A_B C_D E_F G_H I_J K_L and A_B"
	if got := missing(words); len(got) != maxVariables {
		t.Errorf("got %v", got)
	}
}

func TestTheBadgeOfServersCountsWhatNeedsSomebody(t *testing.T) {
	all := []Upstream{{State: "failed"}, {State: "needs_login"}, {State: "ready", Held: 3}, {State: StateDisabled}, {State: "pending"}}
	if got := troubled(all); got != (badge{2, "1 failed, 1 login needed"}) {
		t.Errorf("got %v", got)
	}
	if got := troubled(all[2:]); got.N != 0 {
		t.Errorf("got %v", got)
	}
}
