package page

// views are all that there are, in the order of the menu.
var views = []*view{
	overviewView,
	serversView,
	catalogueView, searchView,
	liveView, liveEvents,
	changesView,
	connectView,
}
