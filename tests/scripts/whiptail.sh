# needs: whiptail
# A full-screen installer.
iottymux run -dt --name setup --size 24x80 -- sh -c '
  name=$(whiptail --inputbox "Name of the host" 8 40 3>&1 1>&2 2>&3) &&
    whiptail --yesno "Install on $name?" 8 40 && echo "$name" >installed'
iottymux wait setup --screen 'Name of the host' --timeout 60 >/dev/null
iottymux send -n setup web-1
iottymux wait setup --screen 'web-1' --timeout 60 >/dev/null
iottymux send setup --keys Enter
iottymux wait setup --screen 'Install on web-1' --timeout 60 >/dev/null
iottymux send setup --keys Tab Tab Enter
iottymux wait setup --timeout 60 >/dev/null
is web-1 "$(cat installed 2>/dev/null || iottymux screen setup)"
