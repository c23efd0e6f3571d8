package proxy_test

import (
	"fmt"
	"testing"
)

// Whatever a server says of the progress of a call, its client gets: all of it,
// in order, before the answer.
func TestEveryNotificationOfACallArrives(t *testing.T) {
	const notices = 1000
	for _, server := range kinds {
		s := newScript(t, "one", server.modern, server.stdio)
		s.list("tools", `{"name":"flood"}`)
		s.on("tools/call flood", func(r *request) {
			token := part(part(r.Params, "_meta"), "progressToken")
			for i := range notices {
				r.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i))
			}
			r.result(`{"content":[]}`)
		})
		p, url := openScripts(t, nil, s)
		for _, client := range kinds {
			t.Run(server.String()+" server, "+client.String()+" client", func(t *testing.T) {
				c := newClient(t, p, url, client, `{}`, reply)
				if got := c.ask("tools/call", `{"name":"one_flood","_meta":{"progressToken":"p"}}`); got.Result == nil {
					t.Fatalf("the answer is %.300s", got.raw)
				}
				heard := c.got("notifications/progress")
				if len(heard) != notices {
					t.Errorf("%d of %d notifications arrived before the answer", len(heard), notices)
				}
				for i, one := range heard {
					if want := fmt.Sprintf(`{"progressToken":"p","progress":%d}`, i); string(one.Params) != want {
						t.Fatalf("notification %d is %s", i, one.Params)
					}
				}
			})
		}
	}
}
