package index

import (
	"strings"
	"sync"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
)

// conceptMark begins the terms of concepts. They sort after the stems.
const conceptMark = "~"

func isConcept(term string) bool { return strings.HasPrefix(term, conceptMark) }

// concepts returns the terms of concepts by stem. People ask with other words than
// tools have: a word of a query also finds, with less weight, the words of its concept.
var concepts = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(conceptTable) {
		words := strings.Fields(line)
		for _, word := range words {
			out[stem(word)] = conceptMark + words[0]
		}
	}
	return out
})

func stem(word string) string {
	env := snowballstem.NewEnv(word)
	english.Stem(env)
	return env.Current()
}

// verbs are the stems of the first paragraph of the table, and of verbs without others of their sense.
var verbs = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	actions, _, _ := strings.Cut(conceptTable, "\n\n")
	for _, word := range strings.Fields(actions + " list search query set count call") {
		out[stem(word)] = true
	}
	return out
})

// conceptTable has a concept a line: words that stand for the same action or thing in
// requests to tools, or for what it is found among ("dollar" among currencies). A stem is in one
// line only. The first paragraph has the verbs that go with any thing. Changes are measured on all annotated sets: docs/retrieval.md.
const conceptTable = `
create add new open insert build generate compose draft write register raise
delete remove erase drop clear discard trash destroy purge wipe throw rid uninstall
update edit modify change alter revise adjust replace patch amend
rename move relocate
read view display fetch retrieve inspect browse
send post deliver dispatch submit transmit
start run execute launch invoke trigger
stop cancel abort terminate kill halt
download save export store
verify validate check confirm ensure

calculate compute calculator calculation arithmetic math multiply divide sum
convert transform conversion
translate translation translator language english french german spanish chinese japanese italian
summarize summary summarise recap digest condense
compare comparison versus
schedule appointment meeting calendar event agenda
reserve book reservation booking
recommend suggest recommendation suggestion advice advise tips ideas
analyze analysis analyse examine evaluate assess analytics insight
explain describe explanation
draw paint sketch illustrate
buy purchase shop shopping product order affordable
teach learn lesson course study tutorial education tutor teacher class
photo image picture photograph pic camera
movie film cinema tv series watch
hotel accommodation lodging stay homestay airbnb apartment rental rent
trip travel vacation journey destination tourist tourism holiday itinerary sightseeing landmark attraction visit
flight airline airplane plane airport fly
car vehicle automobile auto truck drive
train railway rail
job career employment vacancy hire hiring occupation salary
price cost pricing fee expense
discount deal coupon promo promotion sale bargain cheap
stock share equity ticker invest investment investor portfolio
crypto cryptocurrency bitcoin btc ethereum eth blockchain coin nft token
currency dollar usd euro eur gbp pound yen exchange forex
weather forecast temperature rain rainy climate humidity wind sunny snow
repository repo
directory folder
issue ticket bug
note memo jot notebook
presentation powerpoint ppt pptx slide deck
spreadsheet excel xlsx worksheet
document doc docx report
pdf paper
email mail gmail inbox
message sms chat
news headline article journalism
research academic arxiv scholar publication literature scientific
website site webpage page web url link online internet
restaurant dining cuisine eat eatery cafe
recipe cook cooking meal dish ingredient
nutrition diet calorie food healthy
music song track playlist album artist lyric
audio sound
video youtube clip
novel author
game gaming player
exercise workout fitness gym
doctor medical health medicine disease symptom patient clinical drug treatment
law legal lawyer attorney regulation court
house property home estate realty mortgage
finance financial money bank banking
company business corporation organization firm enterprise startup
person people user member
contact phone
location place address coordinate geocode position nearby
map route direction navigate navigation
time date clock timezone today tomorrow
chart graph plot diagram visualization visualize flowchart
code program programming script software developer coding
database sql
pet dog cat animal
baby child kid children
horoscope astrology zodiac fortune tarot
quote saying quotation
logo brand branding
resume cv
domain whois registrant
sport football soccer basketball league team nba
history historical past
distance mile kilometer meter feet unit
password encrypt encryption secure security
`
