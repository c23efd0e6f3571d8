// Package group owns how the processes that this program starts are grouped and
// ended. It starts none itself, and does not decide which may be started.
package group
