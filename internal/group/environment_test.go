package group

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// What a child misses is named if its last words name it, or its subject; else nothing is.
func TestWithheld(t *testing.T) {
	for _, pair := range os.Environ() { // of this machine
		for _, globs := range subjects {
			if name, _, _ := strings.Cut(pair, "="); matchesAny(globs, name) {
				t.Setenv(name, "")
			}
		}
	}
	for _, name := range []string{"DOCKER_HOST", "KUBECONFIG", "SSH_AUTH_SOCK", "AWS_PROFILE", "AWS_REGION", "AWS_CA_BUNDLE", "JAVA_HOME", "MY_SERVICE_KEY"} {
		t.Setenv(name, "x")
	}
	for _, test := range []struct {
		own     map[string]string
		inherit []string
		words   string
		want    []string
	}{
		{nil, nil, "", nil},
		{nil, nil, "I crash", nil},
		{nil, nil, "MY_SERVICE_KEY is required, see HOME", []string{"MY_SERVICE_KEY"}},
		{nil, []string{"*"}, "MY_SERVICE_KEY", nil},
		{nil, nil, "MY_SERVICE_KEYS", nil},
		{nil, nil, "error: DOCKER_HOST is not set", []string{"DOCKER_HOST"}},
		{nil, nil, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock", []string{"DOCKER_HOST"}},
		{map[string]string{"DOCKER_HOST": ""}, nil, "Cannot connect to the Docker daemon", nil},
		{nil, nil, "stat /home/x/.kube/config: no such file or directory", []string{"KUBECONFIG"}},
		{nil, nil, "The connection to the server localhost:8080 was refused - did you specify the right host or port?", []string{"KUBECONFIG"}},
		{nil, nil, "Unable to locate credentials. You can configure credentials by running \"aws configure\".", []string{"AWS_PROFILE"}},
		{nil, []string{"AWS_*"}, "Unable to locate credentials", nil},
		{nil, nil, "You must specify a region.", []string{"AWS_REGION"}},
		{nil, nil, "git@github.com: Permission denied (publickey).", []string{"SSH_AUTH_SOCK"}},
		{nil, nil, "sh: java: not found", []string{"JAVA_HOME"}},
		{nil, nil, "JavaScript heap out of memory", nil},
		{nil, nil, "ERROR: JAVA_HOME is not set and no 'java' command could be found in your PATH.", []string{"JAVA_HOME"}},
	} {
		if got := Withheld(test.own, test.inherit, test.words); !slices.Equal(got, test.want) {
			t.Errorf("%v %v %q: %v, want %v", test.own, test.inherit, test.words, got, test.want)
		}
	}
}
