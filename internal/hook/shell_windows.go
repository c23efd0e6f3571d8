package hook

// shell runs a command line.
var shell = [2]string{"cmd", "/C"}
