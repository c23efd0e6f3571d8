package toolfinch_test
import ("testing";"fmt";"os")
func TestShowClimbs(t *testing.T){
 dir := os.Getenv("CLIMB_DIR")
 uses := usesBetweenFiles(t, dir, exportData(t))
 order, n := ordered(uses)
 fmt.Println(n, climbing(uses, order)); fmt.Println(order)
}
