package page

// screens are all screens, in the order of the menu.
var screens = []*screen{
	overviewScreen,
	serversScreen,
	catalogueScreen, searchScreen, resultScreen,
	liveScreen,
	changesScreen,
	accessScreen,
	connectScreen,
}
