package index

// Weights that combine words and vectors. Scores of words are in units of inverse document frequency, and cosines
// are not normalised either: if the words of a query are rare and found, words decide; if they say little, vectors
// decide. docs/research/retrieval.md lists the alternatives that were tried.
const (
	weightVectors  = 33  // of the similarity, relative to the score of words
	weightClause   = 0.5 // of the most similar clause, relative to the whole query
	weightCoverage = 9   // of each clause that a tool serves better than higher tools
	coveredFrom    = 0.3 // cosine below which a tool does not serve a clause
	weightSaid     = 0.8 // of a clause that a tool says more of than higher tools, relative to the best score
	weightWished   = 2   // instead of weightSaid, if every clause begins with a verb: each asks for a tool
	saidFrom       = 0.5 // share of what the best tool says of a clause below which a tool does not serve it
	twinFrom       = .95 // cosine from which two tools are twins
	weightTwin     = 4   // most that a higher twin takes from a tool
	mostTwins      = 0.5 // share of a score that twins take at most
	weightPrior    = .15 // of a prior of 1, relative to the best score
)

// Weights of a query, tuned on averages like the weights of texts.
const (
	saturation    = 1.8 // BM25's k1: how soon repeating a word adds nothing
	weightWritten = 0.4 // of the written form, relative to the stem
	weightConcept = 0.7 // of a word with about the same meaning, relative to the word
	weightClauses = 0.6 // of the clauses of a query, relative to the whole
	maxTerms      = 256 // different terms in a query
	maxClauses    = 8   // the last clause takes the rest
	resemblance   = 12  // of a name that another name contains; about the weight of a rare word
)

// weightDeprecated is the factor of a deprecated tool's score: its living replacement is meant.
const weightDeprecated = 0.5

// weightUnwanted is the factor of tools that destroy, for a query that does not, and of those that change something,
// for a query that only reads.
const weightUnwanted = 0.85
