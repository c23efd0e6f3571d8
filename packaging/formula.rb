class Toolfinch < Formula
  desc "One MCP server in front of all your tools"
  homepage "{{ .URL }}"
  version "{{ .Version }}"
  license "Apache-2.0"
{{- $r := . }}
{{- range $system, $os := .Systems }}

  on_{{ $system }} do
{{- range $cpu, $a := $os }}
    on_{{ $cpu }} do
      url "{{ $r.URL }}/{{ $a.File }}"
      sha256 "{{ $a.Sum }}"
    end
{{- end }}
  end
{{- end }}

  def install
    bin.install "toolfinch"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/toolfinch.bash" => "toolfinch"
    zsh_completion.install "completions/_toolfinch"
    fish_completion.install "completions/toolfinch.fish"
    (buildpath/"toolfinch.yaml").write <<~YAML
      # What the service serves: it takes an edit while it runs.
      mcp_servers: {}
    YAML
    etc.install "toolfinch.yaml" # an edited one stays
  end

  service do
    run [opt_bin/"toolfinch", "serve", "--config", etc/"toolfinch.yaml", "--listen", "127.0.0.1:8080"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/toolfinch --version")
  end
end
