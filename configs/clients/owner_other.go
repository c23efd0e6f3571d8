//go:build !unix

package clients

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: files inherit the owner from their folder.
func keepOwner(*os.File, fs.FileInfo) {}
