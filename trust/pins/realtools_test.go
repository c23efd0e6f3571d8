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
	definitions := 0
	honest := func(server string, kind tool.Kind, raw json.RawMessage) {
		definitions++
		for _, warning := range Warn(kind, raw) {
			t.Error(server, string(raw), warning)
		}
	}
	for _, file := range files {
		data := must.Get(os.ReadFile(file))(t)
		var recorded struct {
			Instructions string            `json:"instructions"`
			Tools        []json.RawMessage `json:"tools"`
		}
		if err := json.Unmarshal(data, &recorded); err != nil {
			t.Fatal(file, err)
		}
		honest(filepath.Base(file), tool.KindInstructions, json.RawMessage(recorded.Instructions))
		for _, raw := range recorded.Tools {
			honest(filepath.Base(file), tool.KindTool, raw)
		}
	}
	t.Logf("%d definitions of %d servers", definitions, len(files))
}
