// Package trust is the folder of six rooms and has no code: inbound (who comes in), policy and rate (what they may
// do, how often), audit (what was done), pins (what is approved), leaks (secrets in answers). None of them dials a
// server or stores a row. Who somebody is stands in internal/identity.
package trust
