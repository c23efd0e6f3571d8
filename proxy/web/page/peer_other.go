//go:build !linux

package page

import "net/http"

// ofThisUser reports true: whose a connection is cannot be told here. Links are not on command
// lines that others read.
func ofThisUser(*http.Request) bool { return true }
