package main

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"toolfinch/internal/must"
)

// The service of the formula is given a configuration that the formula installs.
func TestFormulaInstallsWhatItsServiceReads(t *testing.T) {
	service := regexp.MustCompile(`etc/"([^"]+)"`).FindStringSubmatch(formula)
	if service == nil || !strings.Contains(formula, `etc.install "`+service[1]+`"`) {
		t.Errorf("the service reads %q, which the formula does not install", service)
	}
}

// The optional PostgreSQL of the Compose file is the one that its comment and the documentation
// have the store at, and is not there unless it is asked for.
func TestPostgreSQLOfCompose(t *testing.T) {
	text := must.Get(os.ReadFile("compose.yaml"))(t)
	page := must.Get(os.ReadFile("../docs/deployment.md"))(t)
	var file struct {
		Services map[string]struct {
			Profiles    []string
			Environment map[string]string
			DependsOn   map[string]struct{ Required *bool } `yaml:"depends_on"`
		}
	}
	must.Do(t, yaml.Unmarshal(text, &file))
	ours, postgres := file.Services["toolfinch"], file.Services["postgres"]
	if required := ours.DependsOn["postgres"].Required; !slices.Equal(postgres.Profiles, []string{"postgres"}) || required == nil || *required {
		t.Errorf("PostgreSQL is always there: profiles %v, %+v", postgres.Profiles, ours)
	}
	for _, name := range []string{"MCPPROXY_STORE", "MCPPROXY_VAULT_KEY"} {
		if got, want := ours.Environment[name], "${"+name+":-}"; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	store := "MCPPROXY_STORE=postgres://" + postgres.Environment["POSTGRES_USER"] + ":${PGPASSWORD}@postgres/" + postgres.Environment["POSTGRES_DB"]
	for name, text := range map[string][]byte{"compose.yaml": text, "docs/deployment.md": page} {
		if !strings.Contains(string(text), store+"\n") || !strings.Contains(string(text), "COMPOSE_PROFILES=postgres") {
			t.Errorf("%s does not have %s", name, store)
		}
	}
}

func TestPlatformsAreThoseOfGoReleaser(t *testing.T) {
	var file struct {
		Builds []struct{ GOOS, GOARCH []string }
	}
	must.Do(t, yaml.Unmarshal([]byte(must.Read(t, "goreleaser.yaml")), &file))
	var all []string
	for _, goos := range file.Builds[0].GOOS {
		for _, arch := range file.Builds[0].GOARCH {
			all = append(all, goos+"_"+arch)
		}
	}
	if slices.Sort(all); !slices.Equal(all, platforms) {
		t.Errorf("goreleaser.yaml builds %v, and this package takes %v", all, platforms)
	}
}

// Each target of the image has what the program needs, whatever else is in it.
func TestTargetsOfTheImage(t *testing.T) {
	text := must.Get(os.ReadFile("Dockerfile"))(t)
	stages := regexp.MustCompile(`(?m)^FROM \S+ AS `).Split(string(text), -1)[1:]
	if len(stages) != 3 {
		t.Fatalf("the Dockerfile has %d stages: the test reads past them", len(stages))
	}
	instructions := func(stage string) (all []string) {
		for line := range strings.Lines(stage) {
			line = strings.TrimSpace(strings.Replace(line, "PATH=/usr/local/bin ", "", 1)) // other images have one
			if kind, _, ok := strings.Cut(line, " "); ok && kind == strings.ToUpper(kind) && kind != "FROM" && kind != "#" {
				all = append(all, line)
			}
		}
		return all
	}
	static, node := instructions(stages[1]), instructions(stages[2])
	if !slices.Equal(static, node) {
		t.Errorf("static has\n  %s\nnode has\n  %s", strings.Join(static, "\n  "), strings.Join(node, "\n  "))
	}
	if certificates := "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/"; !slices.Contains(static, certificates) {
		t.Errorf("no certificates in\n  %s", strings.Join(static, "\n  "))
	}
}

// The configuration of replicas is the same in every place, and no place gives a replica less time to end than it takes.
func TestReplicasAreConfiguredAlike(t *testing.T) {
	_, config, _ := strings.Cut(must.Read(t, "replicas.yaml"), "\n") // past its comment
	manifests, page := must.Read(t, "kubernetes.yaml"), must.Read(t, "../docs/scale.md")
	if indented := "\n    " + strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    ") + "\n"; !strings.Contains(manifests, "toolfinch.yaml: |"+indented) {
		t.Error("kubernetes.yaml has another configuration than replicas.yaml")
	}
	if !strings.Contains(page, "```yaml\n"+config+"```") {
		t.Error("docs/scale.md shows another configuration than replicas.yaml")
	}
	var settings struct {
		Limits struct{ Drain time.Duration } `yaml:"http_limits"`
	}
	must.Do(t, yaml.Unmarshal([]byte(config), &settings))
	ends := int((settings.Limits.Drain + 10*time.Second).Seconds())
	for name, text := range map[string]string{"kubernetes.yaml": manifests, "compose.replicas.yaml": must.Read(t, "compose.replicas.yaml")} {
		grace := regexp.MustCompile(`(?:terminationGracePeriodSeconds|stop_grace_period): (\d+)`).FindStringSubmatch(text)
		if grace == nil || grace[1] != strconv.Itoa(ends) {
			t.Errorf("%s gives a replica %q to end, want %d s", name, grace, ends)
		}
	}
}

// Both load balancers are in front of the replicas of the Compose file, and docs/scale.md shows how they stick.
func TestBalancersAreThoseOfThePage(t *testing.T) {
	page, compose := must.Read(t, "../docs/scale.md"), must.Read(t, "compose.replicas.yaml")
	for name, sticks := range map[string][]string{
		"haproxy.cfg": {"stick on req.hdr(Mcp-Session-Id)", "stick store-response res.hdr(Mcp-Session-Id)"},
		"nginx.conf":  {`map $http_mcp_session_id $client { "" $remote_addr; default $http_mcp_session_id; }`, "hash $client consistent;"},
	} {
		text := must.Read(t, name)
		for _, line := range sticks {
			if !strings.Contains(text, "\t"+line+"\n") || !strings.Contains(page, "      "+line+"\n") {
				t.Errorf("%s and docs/scale.md do not both have %s", name, line)
			}
		}
		servers := regexp.MustCompile(`\b(replica-\d):8080`).FindAllStringSubmatch(text, -1)
		if len(servers) != 3 {
			t.Errorf("%s has the servers %v", name, servers)
		}
		for _, server := range servers {
			if !strings.Contains(compose, "hostname: "+server[1]+"\n") {
				t.Errorf("%s has %s, which is not in compose.replicas.yaml", name, server[1])
			}
		}
	}
}
