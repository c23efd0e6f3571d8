package clients

import (
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// A file that was fine is not called broken because this program cannot edit it.
func TestAnEditThatFailsIsNotTheFilesFault(t *testing.T) {
	d := must.Get(parseJSON([]byte(`{"a": 1}`)))(t)
	d.root.AfterExtra = []byte("}")
	if _, err := d.checked([]byte(`{"a": 1}`), []string{"b"}); err == nil || !strings.Contains(err.Error(), "edit it by hand") {
		t.Errorf("error = %v, want %v", err, errOthers)
	}
}
