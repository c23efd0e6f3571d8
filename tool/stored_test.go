package tool_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestAStoredDefinitionIsParsedAsItWas(t *testing.T) {
	raw := []byte(`{"name":"add","title":"Add","description":"Adds","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"outputSchema":{"type":"string"}}`)
	want := must.Get(tool.ParseKind(tool.KindTool, "calc", raw))(t)
	got, err := tool.ParseStored(tool.KindTool, "calc", raw, want.Hash)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, not %+v", got, err, want)
	}
	for name, hash := range map[string]string{
		"of something else": strings.Repeat("0", 64), "none": "", "too short": want.Hash[:62], "too long": want.Hash + "00", "no hex": strings.Repeat("x", 64),
	} {
		if _, err := tool.ParseStored(tool.KindTool, "calc", raw, hash); !errors.Is(err, tool.ErrBadDef) {
			t.Errorf("a hash %s: %v", name, err)
		}
	}
}
