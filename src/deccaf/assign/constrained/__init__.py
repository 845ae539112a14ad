"""Plans under side constraints: a programme of `columns`, its relaxation, an honest gap, what each costs."""
