package pins

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// TestPublishedServers looks for warnings of published servers, which have done nothing
// wrong.
func TestPublishedServers(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/realtools/*.json")
	if len(files) == 0 {
		t.Skip("the definitions of real servers are not beside the repository (shared/realtools)")
	}
	var all []Definition
	for _, file := range files {
		data := must.Get(os.ReadFile(file))(t)
		var recorded struct {
			Instructions string            `json:"instructions"`
			Tools        []json.RawMessage `json:"tools"`
		}
		if err := json.Unmarshal(data, &recorded); err != nil {
			t.Fatal(file, err)
		}
		server := filepath.Base(file)
		all = append(all, Definition{tool.ID{Server: server, Kind: tool.KindInstructions, Name: "instructions"}, json.RawMessage(recorded.Instructions)})
		for _, raw := range recorded.Tools {
			def := must.Get(tool.ParseDef(server, raw))(t)
			all = append(all, Definition{def.ID, def.Raw})
		}
	}
	warnings := Warn(all, nil)
	for id, of := range warnings {
		t.Error(id, of)
	}
	t.Logf("%d of %d definitions of %d servers have warnings", len(warnings), len(all), len(files))
}
