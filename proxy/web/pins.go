package web

import (
	"encoding/json"
	"fmt"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool/args"
	"toolfinch/trust/pins"
)

// held returns the held definitions of the servers that are whole in the view. Definitions of other servers may be
// outside of the view.
func (q *request) held() ([]pins.Report, error) {
	tools := q.view.tools()
	return q.backend.Held(q.Context(), func(server string) bool {
		_, has := tools[server]
		return has && q.view.Whole(server)
	})
}

func (s *server) listHeld(q *request) (any, error) {
	held, err := q.held()
	if err != nil {
		return nil, err
	}
	if held == nil {
		held = []pins.Report{}
	}
	return struct {
		Held []pins.Report `json:"held"`
	}{held}, nil
}

// decide approves and rejects definitions. The client sends their hashes, which prove that it has seen them.
func (s *server) decide(q *request) (any, error) {
	held, err := q.held()
	if err != nil {
		return nil, err
	}
	var ids []string
	choose := func(to *[]pins.Report) func(json.RawMessage) error {
		return func(value json.RawMessage) error {
			var chosen []struct{ ID, Hash string }
			if json.Unmarshal(value, &chosen) != nil {
				return args.Refuse(`it must be a list of {"id": "server.name", "hash": "..."}`)
			}
			for _, one := range chosen {
				ids = append(ids, one.ID)
				i := slices.IndexFunc(held, func(r pins.Report) bool { return r.ID.String() == one.ID && r.Hash == one.Hash })
				known := slices.ContainsFunc(held, func(r pins.Report) bool { return r.ID.String() == one.ID })
				switch {
				case i >= 0:
					*to = append(*to, held[i])
				case known:
					return fmt.Errorf("%q: %w: look at it once more", rawjson.Clip(one.ID, maxClipped), ErrStale)
				default:
					return notFound("nothing is held that is called %q", rawjson.Clip(one.ID, maxClipped))
				}
			}
			return nil
		}
	}
	var approve, reject []pins.Report
	err = q.fields(args.Func("approve", choose(&approve)), args.Func("reject", choose(&reject)))
	q.target = clipped(ids)
	switch {
	case err != nil:
		return nil, err
	case len(approve)+len(reject) == 0:
		return nil, badRequest(`nothing is decided: send {"approve": [{"id": ..., "hash": ...}]}, or reject`)
	}
	if err := q.backend.Decide(q.Context(), approve, reject); err != nil {
		return nil, err
	}
	return struct {
		Approved int `json:"approved"`
		Rejected int `json:"rejected"`
	}{len(approve), len(reject)}, nil
}
