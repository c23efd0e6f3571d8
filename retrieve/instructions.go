package retrieve

import (
	"fmt"
	"strings"
)

// Offer selects what Retriever.MetaTools returns.
type Offer struct {
	Call  bool     // call_tool; answers name it
	Split bool     // call_tool as three tools, one for each kind
	About []Server // upstreams to name, in order; only Name, Description and Instructions are read
}

// Intro tells clients how to use the meta-tools; see Instructions.
func (o Offer) Intro() string {
	return "This server finds tools for you instead of listing them all: " + o.steps()
}

// AutoIntro is Intro for views that may list all tools instead.
func (o Offer) AutoIntro() string {
	return "Call tools that are listed by their names. For what is not, " + o.steps()
}

func (o Offer) steps() string {
	const steps = "say what you need to retrieve_tools; then call what it found by its name"
	if o.Call {
		return steps + ", or through call_tool when it is not in your list."
	}
	return steps + "."
}

// Bounds, in bytes, of the list of upstreams and of their instructions.
const (
	maxNames        = 250
	maxInstructions = 1500
	maxOwn          = 1000 // of the instructions of one upstream
	maxOwnTogether  = 6000
)

// Instructions returns the instructions for clients, within bounds: intro, the upstreams, and the upstreams'
// instructions.
func Instructions(intro string, about []Server) string {
	var b strings.Builder
	b.WriteString(intro)
	if len(about) == 0 {
		return b.String()
	}
	b.WriteString("\nServers behind it:")
	for i, s := range about {
		line := "\n- " + s.Name
		if s.Description != "" {
			line += ": " + FirstSentence(s.Description)
		}
		if b.Len()+len(line) > maxInstructions {
			fmt.Fprintf(&b, "\n- and %d more", len(about)-i)
			break
		}
		b.WriteString(line)
	}
	return strings.TrimLeft(b.String()+ownInstructions(about), "\n")
}

// ownInstructions returns the upstreams' instructions, each under a heading that names the servers that have them.
func ownInstructions(servers []Server) string {
	var b strings.Builder
	var without []Server
	same := map[string][]Server{} // by instructions
	var texts []string
	for _, s := range servers {
		text := strings.TrimSpace(s.Instructions)
		if text != "" && same[text] == nil {
			texts = append(texts, text)
		}
		same[text] = append(same[text], s)
	}
	for _, own := range texts {
		text := "\n\nInstructions of " + serverNames(same[own]) + ":\n" + clipWords(own, maxOwn)
		if b.Len()+len(text) > maxOwnTogether {
			without = append(without, same[own]...)
			continue
		}
		b.WriteString(text)
	}
	if len(without) > 0 {
		fmt.Fprintf(&b, "\n\nThe instructions of %s are left out.", serverNames(without))
	}
	return b.String()
}

func serverNames(servers []Server) string {
	var b strings.Builder
	for i, s := range servers {
		if b.Len()+len(s.Name) > maxNames {
			fmt.Fprintf(&b, " and %d more", len(servers)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.Name)
	}
	return b.String()
}
